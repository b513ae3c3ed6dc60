"""Checks of ZeroPP (arXiv 2402.03791): simulated units, counted traffic.

The body of the paper is not publicly confirmed. The order of a unit is that of its first author's
implementation, and the formulas for idle time and memory are our own. Left out: throughput, which needs GPUs.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from dtk.repro.checks import Observed, Plot, RunContext, Series
from dtk.repro.values import Model

if TYPE_CHECKING:
    from dtk.pipeline.costs import StageCosts
    from dtk.pipeline.schedule import Schedule
    from dtk.zeropp.formulas import FormulaCheck

__all__ = [
    "TransformerSize",
    "closed_formulas",
    "unit_condition",
    "unit_traffic",
    "worked_example",
]

# Elements of a transformer layer's weights in units of h^2: attention 4, feed-forward 8.
_LAYER_ELEMENTS = 12


class TransformerSize(Model):
    """What the traffic of a layer depends on.

    Attributes:
        hidden: h.
        tokens: s, of a sequence.
        sequences: b, of a micro-batch.
    """

    hidden: int
    tokens: int
    sequences: int = 1


def worked_example(
    context: RunContext, *, num_ranks: int, num_chunks: int, unit: int, slots: list[str]
) -> Observed:
    """One unit in time slots, F, B and W of one slot each, beside the slots that the claim gives."""
    from dtk.pipeline.generators.zeropp import zeropp
    from dtk.pipeline.simulate import simulate, simulate_tasks

    schedule = zeropp(num_ranks, num_chunks, unit, unit=unit)
    costs = _slot_costs(schedule)
    result = simulate(schedule, costs)
    rows = [["..."] * result.makespan_ns for _ in range(num_ranks)]
    for task in simulate_tasks(schedule, costs):
        if task.action is not None:
            kind = task.action.kind.value.replace("I", "B")  # the paper's letter
            chunk = task.action.stage // num_ranks
            rows[task.rank][task.start_ns] = f"{kind}{chunk}{task.action.microbatch}"
    drawn = [" ".join(row) for row in rows]
    differing = sum(
        mine != theirs
        for row, expected in zip_longest(drawn, slots, fillvalue="")
        for mine, theirs in zip_longest(row.split(), expected.split())
    )
    return Observed(
        value={
            "slots": result.makespan_ns,
            "idle slots of a rank": max(result.idle_total_ns),
            "peak activations of a rank": max(result.peak_activation_chunks),
            "slots that differ": differing,
        },
        basis="simulated",
        details={f"rank {rank}": row for rank, row in enumerate(drawn)},
    )


def closed_formulas(context: RunContext, *, max_ranks: int, max_chunks: int, max_units: int) -> Observed:
    """Idle time and memory of ZeroPP by formula and by simulation, over all sizes up to the given ones."""
    found: dict[str, list[FormulaCheck]] = {"idle_ns": [], "peak_activation_chunks": []}
    for num_ranks in range(2, max_ranks + 1):
        context.progress("formulas", num_ranks - 2, max_ranks - 1)
        for num_chunks in range(2, max_chunks + 1):
            for unit in range(-(-num_ranks // 2), 2 * num_ranks + 3):
                for num_units in range(1, max_units + 1):
                    for check in _formulas(num_ranks, num_chunks, unit, num_units):
                        found[check.quantity].append(check)
    idle, peak = found.values()
    return Observed(
        value={
            "settings with an idle time": len(idle),
            "idle times off": sum(not check.agrees for check in idle),
            "settings with a peak": len(peak),
            "peaks off": sum(not check.agrees for check in peak),
        },
        basis="simulated",
        details={"formulas": sorted({check.formula for check in [*idle, *peak]})},
        plots=(_idle_plot(4, 2, max_units),),
    )


def _formulas(num_ranks: int, num_chunks: int, unit: int, num_units: int) -> "Sequence[FormulaCheck]":
    from dtk.pipeline.generators.zeropp import zeropp
    from dtk.pipeline.simulate import simulate
    from dtk.zeropp.formulas import check_formulas

    schedule = zeropp(num_ranks, num_chunks, unit * num_units, unit=unit)
    costs = _slot_costs(schedule)
    return check_formulas(schedule, costs, simulate(schedule, costs))


def _idle_plot(num_ranks: int, num_chunks: int, num_units: int) -> Plot:
    units = range(-(-num_ranks // 2), 2 * num_ranks + 3)
    checks = {
        float(unit): check
        for unit in units
        for check in _formulas(num_ranks, num_chunks, unit, num_units)
        if check.quantity == "idle_ns"
    }
    x = tuple(checks)
    simulated = tuple(float(check.simulated) for check in checks.values())
    formula = tuple(float(check.expected) for check in checks.values())
    return Plot(
        title=f"Idle slots of a rank, P = {num_ranks}, V = {num_chunks}, {num_units} units",
        x_label="micro-batches of a unit, U",
        y_label="idle slots",
        series=(
            Series(name="simulation", x=x, y=simulated, style="points", basis="simulated"),
            Series(name="formula", x=x, y=formula, basis="analytic"),
        ),
    )


def unit_traffic(
    context: RunContext, *, num_ranks: int, num_chunks: int, num_microbatches: int, units: list[int]
) -> Observed:
    """What a rank gathers and reduces for each layer in an iteration, in elements of h^2.

    First as the formula counts it, with a gather for a chunk's forwards of a unit and one for its backwards;
    then as listed and simulated, where a chunk that is used again at once stays gathered.
    """
    value = {}
    for unit in units:
        anew, kept = _traffic(num_ranks, num_chunks, num_microbatches, unit)
        value[f"U = {unit}"] = anew
        value[f"U = {unit}, reused"] = kept
    plot = Plot(
        title=f"Gathered and reduced for each layer, V = {num_chunks}, M = {num_microbatches}",
        x_label="micro-batches of a unit, U",
        y_label="elements / h^2",
        series=tuple(
            Series(
                name=name,
                x=tuple(f"U = {unit}" for unit in units),
                y=tuple(value[f"U = {unit}{suffix}"] for unit in units),
                style="bars",
                basis="simulated",
            )
            for name, suffix in (("a gather for each use", ""), ("chunks reused where they are", ", reused"))
        ),
    )
    return Observed(
        value=value,
        basis="simulated",
        details={"formula": "36 B h^2 / U: 12 h^2 elements a layer, two gathers and a reduction a unit"},
        plots=(plot,),
    )


def unit_condition(context: RunContext, *, sizes: list[TransformerSize], max_unit: int) -> Observed:
    """The smallest unit whose counted traffic is below tensor parallelism's 8 B s b h, or 0."""
    value, reused = {}, {}
    for size in sizes:
        name = f"h = {size.hidden}, s = {size.tokens}"
        value[name] = _smallest_unit(size, max_unit, lambda traffic: traffic[0])
        reused[name] = _smallest_unit(size, max_unit, lambda traffic: traffic[1])
    return Observed(
        value=value,
        basis="simulated",
        details={"condition": "2 s U b > 9 h", "with chunks reused where they are": reused},
    )


def _smallest_unit(
    size: TransformerSize, max_unit: int, choose: Callable[[tuple[float, float]], float]
) -> int:
    num_units = 2
    for unit in range(1, max_unit + 1):
        num_microbatches = num_units * unit
        ours = choose(_traffic(2, 2, num_microbatches, unit)) * size.hidden**2
        # Four all-reduces for each layer and micro-batch, each of twice s b h.
        if ours < 8 * num_microbatches * size.tokens * size.sequences * size.hidden:
            return unit
    return 0


def _traffic(num_ranks: int, num_chunks: int, num_microbatches: int, unit: int) -> tuple[float, float]:
    """Return elements over h^2 for each layer: with a gather for each use in a unit, and as simulated."""
    from dtk.pipeline.action import Kind
    from dtk.pipeline.costs import StageCosts
    from dtk.pipeline.generators.zeropp import zeropp
    from dtk.pipeline.lowering import add_parameters
    from dtk.pipeline.simulate import simulate
    from dtk.pipeline.simulate.result import TrafficKind

    schedule = zeropp(num_ranks, num_chunks, num_microbatches, unit=unit)
    lowered = add_parameters(schedule)
    costs = StageCosts.of(
        schedule.num_stages,
        forward_ns=1,
        input_grad_ns=1,
        weight_grad_ns=1,
        parameter_bytes=_LAYER_ELEMENTS,  # a chunk of one layer, an element a byte
        gradient_bytes=_LAYER_ELEMENTS,
    )
    traffic = simulate(lowered, costs).traffic_bytes
    reduced = max(rank.get(TrafficKind.REDUCE_GRAD, 0) for rank in traffic)
    gathered = max(rank.get(TrafficKind.UNSHARD, 0) for rank in traffic)
    uses = max(
        len(
            {
                (action.stage, (action.microbatch or 0) // unit, action.kind)
                for action in row
                if action.kind is not Kind.WEIGHT_GRAD
            }
        )
        for row in schedule.actions
    )
    return (_LAYER_ELEMENTS * uses + reduced) / num_chunks, (gathered + reduced) / num_chunks


def _slot_costs(schedule: "Schedule") -> "StageCosts":
    from dtk.pipeline.costs import StageCosts

    return StageCosts.of(schedule.num_stages, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
