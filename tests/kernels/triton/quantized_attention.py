"""Attention problems over random codes and scales, and their answers by another library's number formats."""

from dataclasses import dataclass, replace

import torch

from tests.kernels.gemm.cases import operand, operand_values
from tests.kernels.triton import inputs
from tests.kernels.triton.attention_oracle import Problem, expected, make_problem

__all__ = ["QuantizedProblem", "make_quantized_problem", "quantized_expected"]


@dataclass(frozen=True)
class QuantizedProblem:
    """Arguments of `quantized_decode_attention` on the CPU, and the same with K and V in float64."""

    keys: torch.Tensor
    values: torch.Tensor
    key_scales: torch.Tensor
    value_scales: torch.Tensor
    format: str
    plain: Problem

    def tensors(self) -> tuple[torch.Tensor, ...]:
        pools = self.keys, self.values, self.key_scales, self.value_scales
        return self.plain.query, *pools, self.plain.block_table, self.plain.block_lengths

    def on(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Return the tensors there, with their strides."""
        return tuple(tensor.to(device) for tensor in self.tensors())


def make_quantized_problem(
    format: str,
    *,
    scale_dtype: torch.dtype = torch.float32,
    num_scales: int = 1,
    head_dim: int = 64,
    query_dtype: torch.dtype = torch.float32,
    layout: str = "dense",
    **sizes: int,
) -> QuantizedProblem:
    """Return a random problem whose scores are moderate; unlisted tokens have scales that are NaN.

    Args:
        format: of K and V.
        scale_dtype: of their scales.
        num_scales: scales a token.
        head_dim: channels of a head.
        query_dtype: of the query.
        layout: as in `inputs.in_layout`, of query, codes and scales.
        **sizes: as for `make_problem`.
    """
    plain = make_problem(head_dim=head_dim, query_dtype=query_dtype, layout=layout, **sizes)  # type: ignore[arg-type]
    source = inputs.generator(sizes.get("seed", 0) + 1)
    listed = ~plain.keys.isnan().any(dim=-1, keepdim=True)
    shape = plain.keys.shape[:3]
    codes, scales, numbers = [], [], []
    for _ in range(2):
        operands = operand(shape.numel(), head_dim, format, scale_dtype, head_dim // num_scales, source)
        dense = operand_values(*operands, format, head_dim)
        numbers.append(dense.reshape(*shape, head_dim))
        pool, scale = (each.reshape(*shape, each.shape[1]) for each in operands)
        scale = torch.where(listed, scale.float(), float("nan")).to(scale_dtype)
        codes.append(inputs.in_layout(pool, layout))
        scales.append(_in_layout(scale, layout))
    # Scores of some units: a score of hundreds would turn its last bits into errors of the weights.
    size = float(numbers[0].square().mean().sqrt()) or 1.0
    plain = replace(plain, keys=numbers[0], values=numbers[1], scale=head_dim**-0.5 / size)
    return QuantizedProblem(*codes, *scales, format, plain)


def _in_layout(scales: torch.Tensor, layout: str) -> torch.Tensor:
    if scales.element_size() == 1:
        return inputs.in_layout(scales.view(torch.uint8), layout).view(scales.dtype)
    return inputs.in_layout(scales, layout)


def quantized_expected(problem: QuantizedProblem) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and log-sum-exp in float64."""
    return expected(problem.plain)
