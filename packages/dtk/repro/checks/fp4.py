"""Checks of FP4 pre-training (arXiv 2502.11458): what number formats and block scales do to random data.

Left out: training, for which dtk has no recipes yet. The body of the paper is not publicly confirmed.
"""

from dtk.repro.checks import Observed, Plot, RunContext, Series
from dtk.repro.values import Model

__all__ = ["QuantizationScheme", "gaussian_error"]


class QuantizationScheme(Model):
    """A number format with its blocks and scales, as `dtk_kernels.quant` takes them.

    Attributes:
        name: For people.
        format: An element format or a preset.
        block: Rows and columns of a block; left out for a preset.
        scale_format: Left out for the format's usual one.
        error: Mean squared error over mean square on N(0, 1) data, from the table that is checked.
    """

    name: str
    format: str
    error: float
    block: tuple[int, int] | None = None
    scale_format: str | None = None


def gaussian_error(
    context: RunContext, *, rows: int, columns: int, schemes: list[QuantizationScheme]
) -> Observed:
    """The largest difference, in percent, of measured from tabulated errors on N(0, 1) data."""
    import torch

    from dtk_kernels.quant import fake_quantize

    generator = torch.Generator().manual_seed(context.torch_seed("gaussian_error"))
    data = torch.randn(rows, columns, generator=generator)
    power = data.double().square().sum()
    errors, differences = {}, {}
    for scheme in schemes:
        block = ... if scheme.block is None else scheme.block
        rounded = fake_quantize(data, scheme.format, block=block, scale_format=scheme.scale_format)
        error = float((rounded.double() - data.double()).square().sum() / power)
        errors[scheme.name] = error
        differences[scheme.name] = 100 * abs(error / scheme.error - 1)
    return Observed(
        value=max(differences.values()),
        basis="measured",
        details={"errors": errors},
        plots=(_plot(schemes, errors),),
    )


def _plot(schemes: list[QuantizationScheme], errors: dict[str, float]) -> Plot:
    by_format: dict[str, list[QuantizationScheme]] = {}
    for scheme in schemes:
        by_format.setdefault(scheme.format, []).append(scheme)
    points = [
        Series(
            name=name,
            x=tuple(scheme.error for scheme in group),
            y=tuple(errors[scheme.name] for scheme in group),
            style="points",
            basis="measured",
        )
        for name, group in by_format.items()
    ]
    ends = min(scheme.error for scheme in schemes), max(scheme.error for scheme in schemes)
    return Plot(
        title="Mean squared error over mean square of Gaussian data",
        x_label="in the table",
        y_label="here",
        x_scale="log",
        y_scale="log",
        series=(*points, Series(name="equal to the table", x=ends, y=ends, basis="measured")),
    )
