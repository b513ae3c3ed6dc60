"""What closed formulas say of the named schedules, where they hold: to be held against the simulation.

Idle time and activations in one iteration, for stages of equal costs, without transfers and without time for
gathers, reductions and optimizer. Sources: the papers of the schedules; for ZeroPP, derived from its author's
order and checked against a simulator. Left out: sizes for which nothing closed is known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.result import Simulation

__all__ = ["FormulaCheck", "check_formulas"]

Quantity = Literal["idle_ns", "peak_activation_chunks", "gathers"]


@dataclass(frozen=True)
class FormulaCheck:
    """A formula, and whether the simulation says the same.

    Attributes:
        quantity: What it is about, of the rank that has most of it.
        formula: In the papers' letters.
        expected: Its value.
        simulated: The simulation's.
    """

    quantity: Quantity
    formula: str
    expected: int
    simulated: int

    @property
    def agrees(self) -> bool:
        """Whether both are the same."""
        return self.expected == self.simulated


@dataclass(frozen=True)
class _Case:
    """The sizes of a schedule, and the times that all its stages have."""

    ranks: int
    chunks: int
    microbatches: int
    unit: int
    group: int
    split: bool
    forward: int
    input_grad: int
    weight_grad: int

    @property
    def fill(self) -> int:
        return self.ranks - 1

    @property
    def backward(self) -> int:
        return self.input_grad + self.weight_grad

    @property
    def equal(self) -> bool:
        return self.forward == self.input_grad == self.weight_grad

    @property
    def weight_grad_is_short(self) -> bool:
        return self.weight_grad <= min(self.forward, self.input_grad)

    @property
    def num_units(self) -> int:
        """Units of one size; 0 if the last one is short."""
        whole, rest = divmod(self.microbatches, min(self.unit, self.microbatches))
        return 0 if rest else whole

    @property
    def unit_size(self) -> int:
        return min(self.unit, self.microbatches)


Formula = tuple[str, int]


def check_formulas(
    schedule: Schedule, costs: StageCosts, simulation: Simulation, *, resident_chunks: int | None = None
) -> tuple[FormulaCheck, ...]:
    """Return the formulas that hold for a generated schedule, beside what its simulation says.

    Args:
        schedule: From a generator, parameters' actions added or not.
        costs: What was simulated.
        simulation: Its result.
        resident_chunks: With how many stages gathered at once the parameters' actions were added.
    """
    case = _case(schedule, costs)
    if case is None:
        return ()
    checks: list[FormulaCheck] = []
    others = (costs.unshard_ns, costs.reduce_grad_ns, costs.optimizer_ns)
    transfers = (costs.activation_transfer_ns, costs.gradient_transfer_ns)
    if not any(map(any, (*others, *transfers))) and schedule.name in _IDLE:
        _add(checks, "idle_ns", _IDLE[schedule.name](case), max(simulation.idle_total_ns))
    if schedule.name in _PEAK:
        peak = max(simulation.peak_activation_chunks)
        _add(checks, "peak_activation_chunks", _PEAK[schedule.name](case), peak)
    if resident_chunks == 1 and schedule.name == "zeropp":
        _add(checks, "gathers", _zeropp_gathers(case), max(simulation.gathers))
    return tuple(checks)


def _case(schedule: Schedule, costs: StageCosts) -> _Case | None:
    times = costs.forward_ns, costs.input_grad_ns, costs.weight_grad_ns
    if any(len(set(values)) > 1 or not values[0] for values in times):
        return None
    settings = schedule.settings
    return _Case(
        ranks=schedule.num_ranks,
        chunks=schedule.num_stages // schedule.num_ranks,
        microbatches=schedule.num_microbatches,
        unit=int(settings.get("unit", 2 * schedule.num_ranks)),
        group=int(settings.get("group_size", schedule.num_ranks)),
        split=bool(settings.get("split", True)),
        forward=times[0][0],
        input_grad=times[1][0],
        weight_grad=times[2][0],
    )


def _add(checks: list[FormulaCheck], quantity: Quantity, formula: Formula | None, simulated: int) -> None:
    if formula is not None:
        checks.append(FormulaCheck(quantity, *formula, simulated))


def _one_by_one_idle(case: _Case) -> Formula | None:
    return "(P-1)(T_F + T_B + T_W)", case.fill * (case.forward + case.backward)


def _looped_idle(case: _Case) -> Formula | None:
    return _one_by_one_idle(case) if case.microbatches % case.ranks == 0 else None


def _zb_h1_idle(case: _Case) -> Formula | None:
    if not case.weight_grad_is_short or case.microbatches % case.ranks:
        return None
    return "(P-1)(T_F + T_B - T_W)", case.fill * (case.forward + case.input_grad - case.weight_grad)


def _zb_h2_idle(case: _Case) -> Formula | None:
    if not case.weight_grad_is_short or case.microbatches < 2 * case.ranks - 1:
        return None
    slack = max(case.forward, case.forward + case.input_grad - 2 * case.weight_grad)
    return "(P-1) max(T_F, T_F + T_B - 2T_W)", case.fill * slack


def _zb_v_idle(case: _Case) -> Formula | None:
    if not case.equal or case.microbatches < 2 * case.ranks:
        return None
    return "(P-1)T_F", case.fill * case.forward


def _dualpipe_v_idle(case: _Case) -> Formula | None:
    if case.forward != case.input_grad or not case.weight_grad_is_short:
        return None
    if case.microbatches < 2 * case.ranks:
        return None
    slack = case.forward + 2 * case.input_grad - case.weight_grad
    return "(P-1)(T_F + 2T_B - T_W)", case.fill * slack


def _zeropp_idle(case: _Case) -> Formula | None:
    units, size, ranks = case.num_units, case.unit_size, case.ranks
    if not case.equal or not units or min(case.chunks, ranks) < 2 or size < -(-ranks // 2):
        return None
    if not case.split:
        return ("2(P-1) slots a unit", 2 * case.fill * units * case.forward) if size >= ranks else None
    if size >= 2 * ranks:
        text, slots = "P-1 slots", case.fill
    elif size == 2 * ranks - 1:
        text, slots = "P-1 + (n-1) slots, n units", case.fill + units - 1
    elif size >= ranks:
        text, slots = "P-1 + (n-1)(2P-1-U) slots, n units", case.fill + (units - 1) * (2 * ranks - 1 - size)
    else:
        text, slots = "n(P-1 + V(P-U)) slots, n units", units * (case.fill + case.chunks * (ranks - size))
    return text, slots * case.forward


def _zeropp_peak(case: _Case) -> Formula | None:
    if not case.num_units or not case.split or case.unit_size < case.ranks or case.chunks < 2:
        return None
    size = case.unit_size
    return "min(U V, (V-1)U + 2P)", min(size * case.chunks, (case.chunks - 1) * size + 2 * case.ranks)


def _zeropp_gathers(case: _Case) -> Formula | None:
    if not case.num_units or not case.split or case.chunks < 2:
        return None
    each = 2 * case.chunks - 2
    return "2V-1 + (n-1)(2V-2), n units", each + 1 + (case.num_units - 1) * each


def _interleaved_peak(case: _Case) -> Formula | None:
    if case.microbatches % case.ranks or case.microbatches % case.group:
        return None
    most = (case.chunks - 1) * case.group + 2 * case.fill + 1
    return "min(V M, (V-1)G + 2(P-1) + 1)", min(case.chunks * case.microbatches, most)


def _zb_h1_peak(case: _Case) -> Formula | None:
    if case.microbatches % case.ranks:
        return None
    return "P V", case.ranks * case.chunks


def _zb_h2_peak(case: _Case) -> Formula | None:
    return ("2P-1", 2 * case.ranks - 1) if case.microbatches >= 2 * case.ranks - 1 else None


def _zb_v_peak(case: _Case) -> Formula | None:
    return ("2P", 2 * case.ranks) if case.microbatches >= 2 * case.ranks else None


def _dualpipe_v_peak(case: _Case) -> Formula | None:
    return ("2P+1", 2 * case.ranks + 1) if case.microbatches >= 2 * case.ranks else None


_IDLE: Final[Mapping[str, Callable[[_Case], Formula | None]]] = {
    "gpipe": _one_by_one_idle,
    "1f1b": _one_by_one_idle,
    "interleaved": _looped_idle,
    "bfs": _looped_idle,
    "zb-h1": _zb_h1_idle,
    "zb-h2": _zb_h2_idle,
    "zb-v": _zb_v_idle,
    "dualpipe-v": _dualpipe_v_idle,
    "zeropp": _zeropp_idle,
}

_PEAK: Final[Mapping[str, Callable[[_Case], Formula | None]]] = {
    "gpipe": lambda case: ("M", case.microbatches),
    "1f1b": lambda case: ("min(P, M)", min(case.ranks, case.microbatches)),
    "interleaved": _interleaved_peak,
    "bfs": lambda case: ("V M", case.chunks * case.microbatches),
    "zb-h1": _zb_h1_peak,
    "zb-h2": _zb_h2_peak,
    "zb-v": _zb_v_peak,
    "dualpipe-v": _dualpipe_v_peak,
    "zeropp": _zeropp_peak,
}
