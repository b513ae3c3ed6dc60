"""Scaled matrix product: both operands are codes with a scale for each block along the dim summed over."""

import torch

from dtk_kernels._checks import require_count, require_one_of, require_same_device, require_tensors
from dtk_kernels._operation import Operation
from dtk_kernels.formats import FORMATS
from dtk_kernels.gemm._operands import check_operand

__all__ = ["scaled_matmul"]


def scaled_matmul(
    a_codes: torch.Tensor,
    a_scales: torch.Tensor,
    b_codes: torch.Tensor,
    b_scales: torch.Tensor,
    a_format: str,
    b_format: str,
    *,
    block_size: int,
    implementation: str | None = None,
) -> torch.Tensor:
    """Return `A @ B.T` of the dequantised operands: each code's value times its block's scale.

    The reference sums in float64 and rounds once. On a GPU, products within a block are exact (all values
    are exact in float16) and sums are float32, but for two faster ways, taken where they apply:

    - FP8 tensor cores (compute capability 9.0 and up) for two FP8 formats: on Hopper their sums of up to 128
      products keep about 14 bits; sums over blocks are float32.
    - Block-scaled tensor cores (10.0 and up) for E2M1 or FP8 with E8M0 scales of 32 elements, and for E2M1
      with E4M3 scales of 16.

    The native implementation rounds each code times its scale to float32 (which must not overflow) and sums
    in float32, one chain along K: results differ from the exact ones by at most::

        2^-24 * (K + 3) * sum |a| |b|.

    One of them does not depend on what else the call computes, bit for bit.

    Args:
        a_codes: `[M, bytes]`, each row contiguous, K codes a row: int8 for "int8", else uint8; two in a byte
            for 4-bit formats, as `dtk_kernels.quant.pack` puts them.
        a_scales: `[M, K / block_size]`, each row contiguous: float32, bfloat16, float8_e8m0fnu or
            float8_e4m3fn. The tensor's scale of NVFP4 is left out: multiply the result by it.
        b_codes: `[N, bytes]`, like `a_codes`.
        b_scales: `[N, K / block_size]`, like `a_scales`.
        a_format: Name in `dtk_kernels.formats.FORMATS`.
        b_format: Likewise.
        block_size: Elements along K that share a scale, a divisor of K: a multiple of 16, or K itself.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        float32 `[M, N]`.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: A shape, dtype, device or stride does not fit, or a format is unknown.
        NotImplementedError: The named implementation is missing here.
    """
    result: torch.Tensor = OPERATION(
        implementation, a_codes, a_scales, b_codes, b_scales, a_format, b_format, block_size=block_size
    )
    return result


def _check(
    a_codes: torch.Tensor,
    a_scales: torch.Tensor,
    b_codes: torch.Tensor,
    b_scales: torch.Tensor,
    a_format: str,
    b_format: str,
    *,
    block_size: int,
) -> None:
    require_tensors(a_codes=a_codes, a_scales=a_scales, b_codes=b_codes, b_scales=b_scales)
    require_one_of(FORMATS, a_format=a_format, b_format=b_format)
    require_count("block_size", block_size, at_least=1)
    if a_scales.dim() != 2:
        raise ValueError(f"a_scales must have shape [rows, blocks], got {list(a_scales.shape)}")
    depth = a_scales.shape[1] * block_size
    check_operand("a_codes", a_codes, a_scales, a_format, depth=depth, block_size=block_size)
    if b_scales.dim() == 2 and b_scales.shape[1] != a_scales.shape[1]:
        raise ValueError(
            f"b_scales must have {a_scales.shape[1]} in a row as a_scales, got shape {list(b_scales.shape)}"
        )
    check_operand("b_codes", b_codes, b_scales, b_format, depth=depth, block_size=block_size)
    require_same_device(a_codes=a_codes, a_scales=a_scales, b_codes=b_codes, b_scales=b_scales)


def _fake(
    a_codes: torch.Tensor,
    a_scales: torch.Tensor,
    b_codes: torch.Tensor,
    b_scales: torch.Tensor,
    a_format: str,
    b_format: str,
    *,
    block_size: int,
) -> torch.Tensor:
    return torch.empty((a_codes.shape[0], b_codes.shape[0]), dtype=torch.float32, device=a_codes.device)


OPERATION = Operation(
    "scaled_matmul",
    schema=(
        "(Tensor a_codes, Tensor a_scales, Tensor b_codes, Tensor b_scales, str a_format, str b_format, *,"
        " SymInt block_size) -> Tensor"
    ),
    check=_check,
    fake=_fake,
)
