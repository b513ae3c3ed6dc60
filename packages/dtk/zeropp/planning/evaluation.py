"""What a configuration costs: bounds that are cheap and true, and the estimate itself.

The bound on time is the compute of the busiest rank, with the forwards that must come before its first one
and, under sharded weights, the first gather. The bound on memory is what the fullest rank holds when the
forwards that its schedule lists before its first backward are done. Both hold for whatever the simulation
says, so that a search may leave out what they rule out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.iteration.estimate import Estimate, estimate_stages
from dtk.pipeline.iteration.memory import reserve_bytes, states_bytes, working_bytes
from dtk.pipeline.iteration.run import TrainingRun
from dtk.pipeline.iteration.stages import StageTime, stage_costs, stage_times
from dtk.zeropp.planning.candidate import Candidate
from dtk.zeropp.planning.problem import PlanProblem

__all__ = ["Evaluated", "Evaluator", "forwards_first", "zeropp_bound_ns"]

_NS = 10**9


@dataclass(frozen=True)
class Evaluated:
    """A configuration and its estimate; basis: simulated.

    Attributes:
        candidate: The configuration.
        estimate: Time and memory.
        limit_bytes: What a rank may hold.
    """

    candidate: Candidate
    estimate: Estimate
    limit_bytes: int

    @property
    def iteration_s(self) -> float:
        """Time of an iteration."""
        return self.estimate.iteration_s

    @property
    def fits(self) -> bool:
        """Whether every rank stays within its memory."""
        return self.estimate.peak_bytes <= self.limit_bytes


@dataclass
class Evaluator:
    """Estimates configurations of one problem; what several share is computed once.

    Attributes:
        problem: What is planned.
    """

    problem: PlanProblem
    _shared: dict[tuple[object, ...], "_Shared"] = field(default_factory=dict)
    _stages: dict[tuple[object, ...], tuple[StageTime, ...]] = field(default_factory=dict)
    _compute_ns: dict[tuple[object, ...], int] = field(default_factory=dict)
    _ends_ns: dict[Candidate, int] = field(default_factory=dict)

    def stages(self, candidate: Candidate) -> tuple[StageTime, ...]:
        """Return the times of a configuration's stages."""
        key = candidate.stage_key
        if key not in self._stages:
            self._stages[key] = stage_times(candidate.run(self.problem))
        return self._stages[key]

    def compute_bound_ns(self, candidate: Candidate) -> int:
        """Return a time that no schedule of the configuration's stages beats, whatever they communicate."""
        key = candidate.stage_key
        if key not in self._compute_ns:
            count = self.problem.global_batch // (candidate.data_parallel * candidate.micro_batch)
            self._compute_ns[key] = _compute_bound_ns(candidate, self.stages(candidate), count)
        return self._compute_ns[key]

    def bounds(self, candidate: Candidate) -> tuple[int, int]:
        """Return the better bound on time in nanoseconds, and the bound on memory in bytes."""
        shared = self._share(candidate)
        if (end_ns := self._ends_ns.get(_without_optimizer(candidate))) is None:
            computed_ns = shared.costs.unshard_ns[0] + self.compute_bound_ns(candidate)
            end_ns = max(computed_ns, zeropp_bound_ns(candidate, shared.num_microbatches, shared.costs))
        return end_ns + shared.optimizer_ns, shared.memory_bound_bytes(candidate)

    def evaluate(self, candidate: Candidate) -> Evaluated:
        """Return a configuration's estimate.

        Raises:
            InputError: If its schedule does not exist for its sizes.
        """
        shared = self._share(candidate)
        run = candidate.run(self.problem)
        estimate = estimate_stages(run, self.stages(candidate), shared.costs)
        # The optimizer steps once all ranks are done: a plan that differs only there ends as much later.
        end_ns = estimate.simulation.makespan_ns - shared.optimizer_ns
        self._ends_ns[_without_optimizer(candidate)] = end_ns
        return Evaluated(candidate, estimate, self.problem.limit_bytes)

    def _share(self, candidate: Candidate) -> "_Shared":
        schedule = replace(candidate.schedule, unit=None)
        key = (*candidate.stage_key, schedule, candidate.sharding, candidate.replicas_outermost)
        if key not in self._shared:
            self._shared[key] = _shared(candidate, candidate.run(self.problem), self.stages(candidate))
        return self._shared[key]


@dataclass(frozen=True, slots=True)
class _Shared:
    """What configurations share that differ in U.

    Attributes:
        costs: Of the stages.
        num_microbatches: M.
        optimizer_ns: The longest optimizer step of a rank.
        kept_bytes: For each rank model states, working memory and reserve.
        least_bytes: For each rank the larger of two: its smallest chunk, gathered, with the activations of
            one micro-batch; a chunk's gradients, with what a micro-batch keeps for its weight gradients.
        first_activation_bytes: For each chunk of rank 0, what a micro-batch leaves there.
        first_parameter_bytes: The smallest chunk of rank 0, gathered.
    """

    costs: StageCosts
    num_microbatches: int
    optimizer_ns: int
    kept_bytes: tuple[int, ...]
    least_bytes: tuple[int, ...]
    first_activation_bytes: tuple[int, ...]
    first_parameter_bytes: int

    def memory_bound_bytes(self, candidate: Candidate) -> int:
        """Return what the fullest rank holds at least."""
        bound = max(kept + least for kept, least in zip(self.kept_bytes, self.least_bytes, strict=True))
        first = forwards_first(candidate, self.num_microbatches)
        if not first:
            return bound
        held = sum(one * count for one, count in zip(self.first_activation_bytes, first, strict=True))
        return max(bound, self.kept_bytes[0] + self.first_parameter_bytes + held)


def _shared(candidate: Candidate, run: TrainingRun, stages: tuple[StageTime, ...]) -> _Shared:
    ranks = candidate.rank_of_stage()
    costs = stage_costs(run, stages, tuple(ranks))
    own = [
        [stage for stage, each in enumerate(ranks) if each == rank]
        for rank in range(candidate.pipeline_parallel)
    ]
    states = [states_bytes(run, stage) for stage in stages]
    last = len(stages) - 1
    working = [working_bytes(run, last=last in each) for each in own]
    activations, parameters = costs.activation_bytes, costs.parameter_bytes
    backward = [
        gradient + min(activation, kept)
        for gradient, activation, kept in zip(
            costs.gradient_bytes, activations, costs.weight_grad_bytes, strict=True
        )
    ]
    return _Shared(
        costs,
        run.num_microbatches,
        max(sum(costs.optimizer_ns[stage] for stage in each) for each in own),
        tuple(
            reserve_bytes() + extra + sum(states[stage] for stage in each)
            for each, extra in zip(own, working, strict=True)
        ),
        tuple(
            max(
                min(activations[stage] for stage in each) + min(parameters[stage] for stage in each),
                max(backward[stage] for stage in each),
            )
            for each in own
        ),
        tuple(activations[stage] for stage in own[0]),
        min(parameters[stage] for stage in own[0]),
    )


def _compute_bound_ns(candidate: Candidate, stages: tuple[StageTime, ...], num_microbatches: int) -> int:
    forwards = [_ns(stage.forward_s) for stage in stages]
    busy = [0] * candidate.pipeline_parallel
    for rank, forward, stage in zip(candidate.rank_of_stage(), forwards, stages, strict=True):
        busy[rank] += num_microbatches * (forward + _ns(stage.input_grad_s) + _ns(stage.weight_grad_s))
    # Each rank's first stage is among the first P, one after another.
    return max(sum(forwards[:rank]) + busy[rank] for rank in range(candidate.pipeline_parallel))


def forwards_first(candidate: Candidate, num_microbatches: int) -> Sequence[int]:
    """Return how many forwards of each chunk rank 0 runs before its first backward; none where not known."""
    count, ranks, chunks = num_microbatches, candidate.pipeline_parallel, candidate.chunks
    match candidate.schedule.name:
        case "bfs":
            return [count] * chunks
        case "1f1b":
            return [min(count, ranks)]
        case "zeropp":
            unit = min(candidate.schedule.unit or 2 * ranks, count)
            return [unit] * (chunks - 1) + [min(unit, 2 * (ranks - 1) + 1)]
    return []


def zeropp_bound_ns(candidate: Candidate, num_microbatches: int, costs: StageCosts) -> int:
    """Return what rank 0 takes under ZeroPP at least, the optimizer left out; 0 for another schedule.

    Its order leaves gaps that nothing may fill: a unit's first backward waits until the first micro-batch has
    come through the last chunks and back, and with fewer micro-batches than ranks each chunk waits for the
    one before. With one chunk gathered at a time every gather stops the rank's compute. What waits for a
    micro-batch may be gathering meanwhile, so the larger of the two counts.
    """
    schedule, ranks, chunks = candidate.schedule, candidate.pipeline_parallel, candidate.chunks
    if schedule.name != "zeropp":
        return 0
    own = range(0, ranks * chunks, ranks)
    per_microbatch = sum(
        costs.forward_ns[stage] + costs.input_grad_ns[stage] + costs.weight_grad_ns[stage] for stage in own
    )
    unit = schedule.unit or 2 * ranks
    starts = range(0, num_microbatches, unit)
    waits = sum(_gaps_ns(costs, ranks, min(unit, num_microbatches - start)) for start in starts)
    gathers = 0
    if schedule.resident_chunks == 1 and chunks > 1:
        first, *middle, last = (costs.unshard_ns[stage] for stage in own)
        gathers = len(starts) * (first + 2 * sum(middle) + last) + first
    return num_microbatches * per_microbatch + max(waits, gathers)


def _gaps_ns(costs: StageCosts, ranks: int, unit: int) -> int:
    """Return how long rank 0 waits in a unit of that many micro-batches at least."""
    first_of_last = len(costs.forward_ns) - ranks
    gaps = 0
    for first in range(0, first_of_last, ranks):
        through = sum(costs.forward_ns[first : first + ranks])
        gaps += max(0, through - unit * costs.forward_ns[first])
    there_and_back = sum(costs.forward_ns[first_of_last:]) + sum(costs.input_grad_ns[first_of_last + 1 :])
    ahead = min(unit, 2 * ranks - 1) * costs.forward_ns[first_of_last]
    return gaps + max(0, there_and_back - ahead)


def _without_optimizer(candidate: Candidate) -> Candidate:
    return replace(candidate, sharding=replace(candidate.sharding, optimizer_replicas=1))


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
