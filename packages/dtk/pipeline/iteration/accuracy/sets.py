"""Which published runs the cost model is judged on, and how close it is meant to be.

The constants are fitted to every second row of vTrain's two tables (`benchmarks/fit_cost_model.py`); the
other rows of these tables, and all other tables, are predicted. The rows of vTrain's table of one node are
composed from fewer measurements (see `composed`), so that its two halves say the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeVar

from dtk.costmodel import measurements
from dtk.costmodel.measurements import MeasuredRun
from dtk.costmodel.profiles import ModelProfile, published_profiles

__all__ = ["VTRAIN_SIZES", "Bar", "JudgedSet", "fitted_half", "judged_half", "judged_sets"]

Statistic = Literal["mean", "worst"]
RowT = TypeVar("RowT")

_CROSSES_NODES = 8

VTRAIN_SIZES: Final[Mapping[str, int]] = MappingProxyType({"3.6B": 3072, "18.4B": 6144, "175B": 12288})
"""Hidden sizes of vTrain's models on several nodes, by name."""


@dataclass(frozen=True, slots=True)
class Bar:
    """How close predictions are meant to be.

    Attributes:
        statistic: The mean of absolute relative errors, or the largest.
        at_most: What it may be.
    """

    statistic: Statistic
    at_most: float


@dataclass(frozen=True)
class JudgedSet:
    """Published runs that are judged together.

    Attributes:
        name: Short name.
        title: What they are.
        runs: The runs.
        bars: How close the model is meant to be; none where a table is only shown.
        is_fitted: Whether the constants were fitted to these very rows.
        profiles: Measured times of layers that take the place of the chips' constants.
        note: What a reader must know.
    """

    name: str
    title: str
    runs: tuple[MeasuredRun, ...]
    bars: tuple[Bar, ...] = ()
    is_fitted: bool = False
    profiles: tuple[ModelProfile, ...] = ()
    note: str = ""


def fitted_half(rows: Sequence[RowT]) -> tuple[RowT, ...]:
    """Return the rows of a vTrain table that the constants are fitted to."""
    return tuple(rows[::2])


def judged_half(rows: Sequence[RowT]) -> tuple[RowT, ...]:
    """Return the other rows."""
    return tuple(rows[1::2])


def judged_sets() -> tuple[JudgedSet, ...]:
    """Return all sets: first those with bars, then those without, last the rows that were fitted."""
    return (*_vtrain_with_bars(), *_others_with_bars(), *_without_bars(), *_fitted())


def _vtrain_with_bars() -> tuple[JudgedSet, ...]:
    judged = _within_nodes(judged_half(measurements.vtrain_multi_node()))
    return (
        JudgedSet(
            "vtrain",
            "vTrain, 64 to 512 A100s, tensor parallelism inside nodes: the half that was not fitted",
            judged,
            (Bar("mean", 0.10),),
        ),
        JudgedSet(
            "vtrain-175b",
            "Of these, the runs of 175B",
            _of_size(judged, "175B"),
            (Bar("mean", 0.045),),
            note="One layout was measured twice, once in each half.",
        ),
    )


def _others_with_bars() -> tuple[JudgedSet, ...]:
    return (
        JudgedSet(
            "korthikanti",
            "Korthikanti et al., 22B to 1T, full and selective recomputation",
            measurements.korthikanti(),
            (Bar("mean", 0.036), Bar("worst", 0.088)),
        ),
        JudgedSet(
            "weak-scaling",
            "Narayanan et al. (SC'21), 1.7B to 1T on 32 to 3072 A100s",
            measurements.megatron_weak_scaling(),
            (Bar("worst", 0.08),),
            note="The micro-batch is not printed: the one that the model finds fastest in memory is taken. "
            "With 1 throughout, four of the ten rows would be 5 to 23 % too slow.",
        ),
        JudgedSet(
            "v100-a100",
            "The same code on V100s and on A100s, 1B to 8B",
            measurements.v100_a100_pair(),
            (Bar("worst", 0.10),),
        ),
    )


def _without_bars() -> tuple[JudgedSet, ...]:
    vtrain = judged_half(measurements.vtrain_multi_node())
    table_2 = measurements.megatron_ptd_and_zero3()
    return (
        JudgedSet("vtrain-3.6b", "vTrain, runs of 3.6B, not fitted", _of_size(_within_nodes(vtrain), "3.6B")),
        JudgedSet(
            "vtrain-18.4b", "vTrain, runs of 18.4B, not fitted", _of_size(_within_nodes(vtrain), "18.4B")
        ),
        JudgedSet(
            "vtrain-tp16", "vTrain, 16 tensor-parallel ranks on two nodes, not fitted", _across_nodes(vtrain)
        ),
        JudgedSet(
            "vtrain-one-node",
            "vTrain, one node, not fitted",
            judged_half(measurements.vtrain_single_node()),
            note="Composed from fewer measurements, as the fitted half: no independent timings.",
        ),
        JudgedSet(
            "zero-bubble",
            "Qi et al. (zero bubble), 1F1B and interleaved, 1.5B to 28.3B",
            tuple(run for run in measurements.zero_bubble() if run.schedule in {"1f1b", "interleaved"}),
            note="The rows of the two searched schedules are left out: the search is not ours.",
        ),
        JudgedSet(
            "sc21-pipelines",
            "Narayanan et al. (SC'21), table 2: 175B and 530B with pipelines",
            tuple(run for run in table_2 if run.sharding.stage == 0),
        ),
        JudgedSet(
            "sc21-zero3",
            "Narayanan et al. (SC'21), table 2: the same under ZeRO-3 alone",
            tuple(run for run in table_2 if run.sharding.stage == 3),
        ),
        JudgedSet("mt-nlg", "Smith et al., MT-NLG 530B on 2240 to 3360 A100s", measurements.mt_nlg()),
        JudgedSet("internevo", "InternEvo, 7B on 8 to 1024 A100s", measurements.internevo_7b()),
        JudgedSet(
            "torchtitan",
            "torchtitan, Llama 3.1 of 8B and 70B in bf16 on H100s held at 500 W",
            _torchtitan()[2:],
            note="Rows in fp8 are left out: the linear layers alone are in fp8, which no run describes. The "
            "two rows on 8 chips were fitted.",
        ),
        JudgedSet(
            "sailor-gh200",
            "SAILOR, OPT-350M in fp32 on GH200s",
            _on_like_nodes(measurements.sailor_plans()),
            note="Runs on unlike nodes are left out.",
        ),
        JudgedSet(
            "sailor-gh200-profiled",
            "The same from SAILOR's measured times of layers",
            _on_like_nodes(measurements.sailor_plans()),
            profiles=published_profiles(measurements.sailor_layer_profiles()),
            note="Measured times take the place of the chip's shares; constants are those of collectives.",
        ),
    )


def _fitted() -> tuple[JudgedSet, ...]:
    several = _within_nodes(fitted_half(measurements.vtrain_multi_node()))
    across = _across_nodes(fitted_half(measurements.vtrain_multi_node()))
    one = fitted_half(measurements.vtrain_single_node())
    return (
        JudgedSet(
            "vtrain-fitted", "vTrain, several nodes: the half that was fitted", several, is_fitted=True
        ),
        JudgedSet("vtrain-tp16-fitted", "vTrain, 16 tensor-parallel ranks, fitted", across, is_fitted=True),
        JudgedSet("vtrain-one-node-fitted", "vTrain, one node, fitted", one, is_fitted=True),
        JudgedSet(
            "torchtitan-fitted",
            "torchtitan, 8B on 8 H100s, with and without compile: a constant fitted to each",
            _torchtitan()[:2],
            is_fitted=True,
        ),
    )


def _torchtitan() -> tuple[MeasuredRun, ...]:
    return tuple(run for run in measurements.torchtitan() if run.precision == "bf16")


def _within_nodes(runs: Sequence[MeasuredRun]) -> tuple[MeasuredRun, ...]:
    return tuple(run for run in runs if run.layout.tensor_parallel <= _CROSSES_NODES)


def _across_nodes(runs: Sequence[MeasuredRun]) -> tuple[MeasuredRun, ...]:
    return tuple(run for run in runs if run.layout.tensor_parallel > _CROSSES_NODES)


def _on_like_nodes(runs: Sequence[MeasuredRun]) -> tuple[MeasuredRun, ...]:
    return tuple(run for run in runs if not run.placement)


def _of_size(runs: Sequence[MeasuredRun], size: str) -> tuple[MeasuredRun, ...]:
    return tuple(run for run in runs if run.shape.hidden_size == VTRAIN_SIZES[size])
