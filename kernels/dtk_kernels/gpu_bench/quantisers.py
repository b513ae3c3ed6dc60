"""Quantisers in a run: what must have the reference's bits, and the fused fake quantise that is timed."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from dtk_kernels import quant

__all__ = ["Results", "bits_of", "fake_quantize_options", "quantiser_results"]

Results = Callable[[torch.device, str], Sequence[torch.Tensor]]
"""Runs an operation on a device, by the implementation of that name."""

_SCHEMES: tuple[tuple[str, dict[str, Any], bool], ...] = (
    ("e4m3", {"block": (1, 128)}, False),
    ("mxfp4", {}, False),
    ("nvfp4", {}, True),
    ("int8", {"block": None, "scale_format": "bf16"}, False),
    ("e5m2", {"block": (32, 24), "scale_format": "e8m0_ceil"}, True),
)


def quantiser_results(
    dtype: torch.dtype, shape: Sequence[int], source: torch.Generator
) -> Iterator[tuple[str, str, Results]]:
    """Yield operation, detail and how to run it, for each that is checked.

    The numbers have all exponents, subnormal ones too, and some are NaN or Inf.
    """
    bits = torch.randint(-(2**31), 2**31, tuple(shape), generator=source).to(torch.int32)
    x = torch.where(bits % 4 == 0, bits.view(torch.float32), torch.randn(tuple(shape), generator=source))
    x = x.to(dtype)
    for name, options, stochastic in _SCHEMES:
        noise = bits.flip(0) if stochastic else None
        arguments = x, noise, name, options
        detail = f"{name}, {'stochastic' if stochastic else 'nearest'}"
        yield "quantize", detail, partial(_quantize, *arguments)
        yield "fake_quantize", detail, partial(_fake_quantize, *arguments)
        codes, scales = quant.quantize(x, name, implementation="reference", **options)
        block = {key: value for key, value in options.items() if key == "block"}
        yield "dequantize", name, partial(_dequantize, codes, scales, name, block)
    codes = (bits & 15).to(torch.uint8)
    yield "pack", "", partial(_pack, codes)
    yield "unpack", "", partial(_unpack, codes)
    for size in (16, 128):
        # What is no sign shows how products are rounded.
        blocks, signs = (
            torch.randn(*shape[:-1], 3 * size, generator=source),
            torch.randn(size, generator=source),
        )
        yield "hadamard", f"size {size}", partial(_hadamard, blocks.to(dtype), signs, size)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return numbers as the integers that their bits are; NaN are all alike."""
    bits = tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])
    return bits if bits.element_size() == 1 else bits.masked_fill(tensor.isnan(), -1)


def fake_quantize_options(format: str, block_size: int) -> dict[str, Any]:
    """Return the arguments of a timed case: blocks along rows; a preset has them itself."""
    return {} if format in ("mxfp4", "nvfp4") else {"block": (1, block_size)}


def _rounding(noise: torch.Tensor | None, device: torch.device) -> dict[str, Any]:
    return {} if noise is None else {"rounding": "stochastic", "random_bits": noise.to(device)}


def _quantize(
    x: torch.Tensor,
    noise: torch.Tensor | None,
    name: str,
    options: dict[str, Any],
    device: torch.device,
    implementation: str,
) -> Sequence[torch.Tensor]:
    codes, scales = quant.quantize(
        x.to(device), name, implementation=implementation, **options, **_rounding(noise, device)
    )
    return codes, *(scales if isinstance(scales, quant.NvScales) else (scales,))


def _fake_quantize(
    x: torch.Tensor,
    noise: torch.Tensor | None,
    name: str,
    options: dict[str, Any],
    device: torch.device,
    implementation: str,
) -> Sequence[torch.Tensor]:
    more = {**options, **_rounding(noise, device)}
    return (quant.fake_quantize(x.to(device), name, implementation=implementation, **more),)


def _dequantize(
    codes: torch.Tensor,
    scales: torch.Tensor | quant.NvScales,
    name: str,
    block: dict[str, Any],
    device: torch.device,
    implementation: str,
) -> Sequence[torch.Tensor]:
    if isinstance(scales, quant.NvScales):
        there: torch.Tensor | quant.NvScales = quant.NvScales(*(each.to(device) for each in scales))
    else:
        there = scales.to(device)
    return (quant.dequantize(codes.to(device), there, name, implementation=implementation, **block),)


def _pack(codes: torch.Tensor, device: torch.device, implementation: str) -> Sequence[torch.Tensor]:
    return (quant.pack(codes.to(device), implementation=implementation),)


def _unpack(codes: torch.Tensor, device: torch.device, implementation: str) -> Sequence[torch.Tensor]:
    packed = quant.pack(codes, implementation="reference").to(device)
    return (quant.unpack(packed, codes.shape[-1], implementation=implementation),)


def _hadamard(
    x: torch.Tensor, signs: torch.Tensor, size: int, device: torch.device, implementation: str
) -> Sequence[torch.Tensor]:
    return (quant.hadamard(x.to(device), signs.to(device), size=size, implementation=implementation),)
