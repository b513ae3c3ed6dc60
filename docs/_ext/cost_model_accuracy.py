"""Writes the page that holds the cost model's predictions against published measurements, with its plots."""

from collections.abc import Mapping, Sequence

import cost_model_tables as tables

from dtk.pipeline.iteration.accuracy.judging import SetAccuracy, judge_all
from dtk.pipeline.iteration.accuracy.memory import MemoryAccuracy, judge_memory
from dtk.pipeline.iteration.published import Comparison
from dtk.repro.cost_model_plots import error_plot, memory_plot, times_plot
from dtk.repro.drawing import draw_svg
from dtk.repro.observed import Plot
from dtk.workload.parameters import count_parameters

__all__ = ["accuracy_pages"]

_INTRODUCTION = """What the cost model says of runs that others measured and published, written from the
packaged tables (`dtk.costmodel.measurements`) and constants when this page was made. Every predicted figure
is *simulated*: times of operations and collectives from `dtk.costmodel`, joined by an event simulation of
the pipeline's schedule. Measured ones are *published*. `dtk repro run costmodel` checks those with a bar on
your machine.

The constants of the A100 and of Megatron-like software were fitted to every second row of vTrain's two
tables (`benchmarks/fit_cost_model.py`). The other rows of these tables were not seen by the fit. When they
were fitted without any row of 175B (`--without-175b`), its 21 rows came out 0.9 % off in the mean and 3.6 %
at worst. Two more, of torch's FSDP and of H100s held at 500 W, are fitted to one row of torchtitan's table
each. Nothing was fitted to any other table. Errors are those of an iteration's time: predicted over
measured, less one."""

_BARS = """What the model is meant to reach, and what it does. The last columns count the constants that
each row rests on by their origin; one of the fitted ones is a choice between two. Borrowed are estimates that
were fitted for another chip or other software, and are taken over."""

_GROUPS = "The tables with bars, and vTrain's runs over two nodes: none of these rows was fitted."

_MEMORY = """Korthikanti et al. print what their formulas give, so that those rows check how bytes are
counted. The peaks of the others were measured, as allocators or `nvidia-smi` report them; SAILOR's hold
contexts and caches too, 1 to 4 GiB more than predicted in every run. Those of the zero-bubble paper are
printed in whole GB; read as GiB, as torch reports, they are 7 % larger. torchtitan's peaks are some 20 GiB
more than predicted on 8 chips as on 128: more than two copies of the logits in fp32 (8 GiB each) are missing,
which torch's loss and its gradient keep where the model counts one. Left out: runs on unlike nodes and in
fp8."""

_MISSES = """All rows that are more than a tenth off, with what is known of the reason: *table* where a row
contradicts its neighbours in the same table, *left out* for an effect that the model does not have,
*software* for other software or hardware than the constants stand for, or *unexplained*. Figures of the
tables in the reasons are checked by tests. Many rows with one reason stand together, by size."""

_CONSTANTS = """Each stands in `dtk/costmodel/constants`; the attributes of `ChipConstants`,
`StackConstants` and `GeneralConstants` in `dtk.costmodel.constants` say what each one is."""


def accuracy_pages() -> dict[str, str]:
    """Return the page and its plots by file name; takes some seconds."""
    accuracies = {each.judged.name: each for each in judge_all()}
    memory = judge_memory()
    plots = _plots(accuracies, memory)
    files = {f"cost-model-{name}.svg": _picture(name, plot) for name, plot in plots.items()}
    return {"cost-model-accuracy.md": _page(accuracies, memory, plots), **files}


def _page(
    accuracies: Mapping[str, SetAccuracy], memory: Sequence[MemoryAccuracy], plots: Mapping[str, Plot]
) -> str:
    def drawn(*names: str) -> str:
        return "\n\n".join(f"![{plots[name].title}](cost-model-{name}.svg)" for name in names)

    sets = list(accuracies.values())
    parts = [
        "# Accuracy of the cost model",
        _INTRODUCTION,
        "## Bars",
        _BARS,
        tables.bars(sets, memory),
        drawn("bars", "others"),
        "## All tables",
        tables.all_sets(sets),
        tables.notes(sets),
        tables.composed(accuracies),
        "## By size, ranks and depth",
        _GROUPS,
        drawn("size", "ranks", "depth"),
        tables.groups(accuracies),
        "## Choosing a layout",
        tables.rankings(accuracies),
        "## Memory",
        _MEMORY,
        tables.memory_tables(memory),
        drawn("memory"),
        "## Rows that the model gets wrong",
        _MISSES,
        tables.far_off(sets),
        "## Constants",
        _CONSTANTS,
        tables.constants(sets),
    ]
    return "\n\n".join(parts) + "\n"


def _plots(accuracies: Mapping[str, SetAccuracy], memory: Sequence[MemoryAccuracy]) -> dict[str, Plot]:
    barred = [each for each in accuracies.values() if each.judged.bars and each.judged.name != "vtrain-175b"]
    shown = ("zero-bubble", "sc21-pipelines", "sc21-zero3", "mt-nlg", "internevo")
    others = [accuracies[name] for name in shown]
    several = [*barred, accuracies["vtrain-tp16"]]
    return {
        "bars": times_plot(barred, "Predicted and measured iterations: tables with bars"),
        "others": times_plot(others, "Predicted and measured iterations: other tables"),
        "size": error_plot(several, "Errors by size", "parameters, billions", _billions),
        "ranks": error_plot(
            several, "Errors by tensor parallelism", "tensor-parallel ranks", tables.tensor_ranks
        ),
        "depth": error_plot(several, "Errors by depth of the pipeline", "pipeline ranks", tables.depth),
        "memory": memory_plot(memory, "Predicted and published memory of the fullest chip"),
    }


def _picture(name: str, plot: Plot) -> str:
    svg = draw_svg(plot, prefix=name)
    # Pages are dark for those who want it so; the ink of plots is not.
    return svg.replace("<svg ", '<svg style="background:#ffffff" ', 1) + "\n"


def _billions(row: Comparison) -> float:
    return count_parameters(row.measured.shape) / 1e9
