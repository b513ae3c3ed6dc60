# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Random Hadamard transform in Triton: a program transforms whole blocks, in registers.

A fast transform, not a product with the matrix on tensor cores: every implementation must add in the same
order.
"""

import torch
import triton.language as tl

from dtk_kernels.quant.triton_numbers import AS_INTEGERS, float_bits, storable
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2, triton_type

__all__ = ["aot_variants", "hadamard"]

_ELEMENTS = 4096


@jit
def _butterflies(
    values: tl.tensor, STRIDE: tl.constexpr, COUNT: tl.constexpr, SIZE: tl.constexpr
) -> tl.tensor:
    """Replace each pair (a, b) of elements STRIDE apart by (a + b, a - b)."""
    pairs = tl.permute(tl.reshape(values, [COUNT * SIZE // (2 * STRIDE), 2, STRIDE]), [0, 2, 1])
    even, odd = tl.split(pairs)
    both = tl.permute(tl.join(even + odd, even - odd), [0, 2, 1])
    return tl.reshape(both, [COUNT, SIZE])


@jit(unspecialized=("blocks", "blocks_in_row"))
def _hadamard_kernel(
    x: tl.tensor,
    signs: tl.tensor,
    result: tl.tensor,
    blocks: tl.tensor,
    blocks_in_row: tl.tensor,
    stride_row: tl.tensor,
    stride_column: tl.tensor,
    FACTOR: tl.constexpr,
    INVERSE: tl.constexpr,
    SIZE: tl.constexpr,
    LOG_SIZE: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    block = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    element = tl.arange(0, SIZE)
    there = (block < blocks)[:, None]
    in_row = (block % blocks_in_row) * SIZE * stride_column
    at = (block // blocks_in_row * stride_row + in_row)[:, None]
    at = at + (element.to(tl.int64) * stride_column)[None, :]
    values = float_bits(tl.load(x + at, mask=there, other=0)).to(tl.float32, bitcast=True)
    sign = tl.load(signs + element)[None, :]
    if not INVERSE:
        values = values * sign
    for stage in tl.static_range(LOG_SIZE):
        values = _butterflies(values, 1 << stage, TILE, SIZE)
    values = values * FACTOR
    if INVERSE:
        values = values * sign
    tl.store(result + (block * SIZE)[:, None] + element[None, :], storable(values, result), mask=there)


def hadamard(x: torch.Tensor, signs: torch.Tensor, *, size: int, inverse: bool = False) -> torch.Tensor:
    """Return the blocks of the last dim, transformed or transformed back.

    Args:
        x: `[..., n]`.
        signs: float32 `[size]`.
        size: A power of two that divides n.
        inverse: Whether to undo the transform.
    """
    result = x.new_empty(x.shape)
    if not x.numel():
        return result
    rows = x.reshape(-1, size) if x.is_contiguous() else x.reshape(-1, x.shape[-1])
    blocks = x.numel() // size
    tile, num_warps = _tile(blocks, size)
    launch(
        _hadamard_kernel,
        (ceil_div(blocks, tile),),
        *(_as_loaded(rows), signs.contiguous(), _as_loaded(result)),
        *(blocks, rows.shape[1] // size, *rows.stride()),
        device=x.device,
        enable_fp_fusion=False,
        num_warps=num_warps,
        **_constants(size, inverse=inverse, tile=tile),
    )
    return result


def _as_loaded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(AS_INTEGERS[tensor.dtype]) if tensor.dtype in AS_INTEGERS else tensor


def _tile(blocks: int, size: int) -> tuple[int, int]:
    """Blocks of a program, and its warps."""
    tile = min(next_power_of_2(blocks), max(_ELEMENTS // size, 1))
    return tile, min(max(tile * size // 1024, 1), 4)


def _constants(size: int, *, inverse: bool, tile: int) -> dict[str, object]:
    return {
        "FACTOR": size**-0.5,
        "INVERSE": inverse,
        "SIZE": size,
        "LOG_SIZE": size.bit_length() - 1,
        "TILE": tile,
    }


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: each dtype, sizes from small to the largest."""
    return [
        _variant(dtype, size, inverse=inverse)
        for dtype, size, inverse in (
            (torch.bfloat16, 16, False),
            (torch.bfloat16, 128, True),
            (torch.float16, 32, False),
            (torch.float32, 128, False),
            (torch.bfloat16, 4096, False),
        )
    ]


def _variant(dtype: torch.dtype, size: int, *, inverse: bool) -> KernelVariant:
    tile, num_warps = _tile(1 << 20, size)
    pointer = {torch.float32: "*i32", torch.bfloat16: "*i16"}.get(dtype, "*fp16")
    return KernelVariant(
        name=f"hadamard[{triton_type(dtype)},{size}{',inverse' if inverse else ''}]",
        kernel=_hadamard_kernel,
        types={"x": pointer, "signs": "*fp32", "result": pointer},
        constants={"stride_column": 1, **_constants(size, inverse=inverse, tile=tile)},
        num_warps=num_warps,
        aligned=frozenset({"stride_row"}),
        fp_fusion=False,
    )
