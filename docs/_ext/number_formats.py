"""Writes the page of number formats from the table that the kernels round by."""

import math

from dtk_kernels.formats import FORMATS, PRESETS, SCALE_FORMATS, Format

__all__ = ["formats_page"]

# Bits of one scale, and what it can be.
_SCALES = {
    "fp32": (32, "float32"),
    "bf16": (16, "bfloat16"),
    "e8m0": (8, "float8_e8m0fnu"),
    "nvfp4": (8, "float8_e4m3fn, with one float32 for the tensor"),
}


def formats_page() -> str:
    """Return the page of element formats, scale formats and presets."""
    parts = [
        "# Number formats",
        _INTRODUCTION,
        "## What each element format can do",
        _table([_HEADER, *(_row(format) for format in FORMATS.values())]),
        _LEGEND,
        "## Scales and presets",
        "Bits that each element takes, with its share of the block's scale:",
        _scale_table(),
        _preset_text(),
        "## Every code",
        *(_codes(format) for format in FORMATS.values()),
    ]
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = (
    "What `dtk_kernels.quant` rounds to, written from `dtk_kernels.formats` when this page was made. "
    "{doc}`/concepts/quantization` says how values and scales are rounded."
)
_LEGEND = (
    "*max* is the largest finite value; every format is symmetric, and larger values saturate there. "
    "*Step at 1* is the distance from 1 to the next larger value, or epsilon. Quantising never produces "
    "Inf or NaN codes, nor -8 and -128; dequantising knows them all."
)
_HEADER = (
    "format", "bits", "exponent, mantissa bits", "bias", "max", "smallest normal", "smallest positive",
    "step at 1", "finite codes", "Inf", "NaN",
)  # fmt: skip


def _row(format: Format) -> tuple[str, ...]:
    finite = len({code for code, value in enumerate(format.values) if math.isfinite(value)})
    layout = "integer" if format.is_integer else f"{format.exponent_bits}, {format.mantissa_bits}"
    nan = [f"0x{code:02X}" for code, value in enumerate(format.values) if math.isnan(value)]
    infinite = [f"0x{code:02X}" for code, value in enumerate(format.values) if math.isinf(value)]
    return (
        f"`{format.name}`",
        str(format.bits),
        layout,
        "" if format.is_integer else str(format.bias),
        _number(format.max),
        "" if format.smallest_normal is None else _power(format.smallest_normal),
        _power(format.smallest_subnormal),
        _power(format.epsilon or 1.0),
        str(finite),
        ", ".join(infinite) or "none",
        ", ".join(nan) or "none",
    )


def _scale_table() -> str:
    rows = [("element bits", "scale", "scale's dtype", "1x16", "1x32", "1x128", "128x128")]
    for bits in sorted({format.bits for format in FORMATS.values()}):
        for scale, (scale_bits, dtype) in _SCALES.items():
            costs = (f"{bits + scale_bits / size:.6g}" for size in (16, 32, 128, 128 * 128))
            rows.append((str(bits), f"`{scale}`", dtype, *costs))
    return _table(rows)


def _preset_text() -> str:
    variants = ", ".join(f"`{name}`" for name in SCALE_FORMATS if name.startswith("e8m0"))
    presets = "; ".join(
        f"`{name}` is `{preset.format}` in blocks of {preset.block[0]}x{preset.block[1]} with scales"
        f" `{preset.scale_formats[0]}`"
        for name, preset in PRESETS.items()
    )
    return f"All of {variants} are stored as E8M0 and differ in how they round. Presets: {presets}."


def _codes(format: Format) -> str:
    title = f"### `{format.name}`"
    sign_bit = 1 << (format.bits - 1)
    if format.is_integer:
        return f"{title}\n\nTwo's complement: codes 0 to {sign_bit - 1} are themselves, the others negative."
    columns = 1 << format.mantissa_bits
    header = ("first code", *(f"+{offset}" for offset in range(columns)))
    rows = [
        (f"0x{code:02X}", *(_number(value) for value in format.values[code : code + columns]))
        for code in range(0, sign_bit, columns)
    ]
    return f"{title}\n\nPositive codes; the sign is bit {format.bits - 1}.\n\n{_table([header, *rows])}"


def _number(value: float) -> str:
    return {math.inf: "Inf"}.get(value, "NaN" if math.isnan(value) else f"{value:.7g}")


def _power(value: float) -> str:
    exponent = math.log2(value)
    return _number(value) if exponent > -5 else f"2^{exponent:.0f}"


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
