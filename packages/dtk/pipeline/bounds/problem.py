"""What lower bounds are asked for: stages on ranks, their costs, micro-batches, and each rank's memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from dtk.errors import InputError
from dtk.pipeline.costs import StageCosts

__all__ = ["BoundedProblem", "bounded_problem"]


@dataclass(frozen=True)
class BoundedProblem:
    """What is to be scheduled, checked; `limits` are the ranks' memory, in the units of the costs' bytes."""

    costs: StageCosts
    rank_of_stage: tuple[int, ...]
    num_microbatches: int
    stages_of_rank: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...] | None

    @property
    def num_ranks(self) -> int:
        """The number of ranks, P."""
        return len(self.stages_of_rank)

    @property
    def num_stages(self) -> int:
        """The number of stages, S."""
        return len(self.rank_of_stage)

    @property
    def kept(self) -> tuple[int, ...]:
        """For each stage what an activation holds until its weight gradient has ended, at least."""
        return tuple(map(min, self.costs.activation_bytes, self.costs.weight_grad_bytes))

    def sums_up_to(self, values: Sequence[int]) -> list[int]:
        """Return for each stage the sum over its rank's stages up to itself."""
        sums = [0] * self.num_stages
        for held in self.stages_of_rank:
            for stage, total in zip(held, accumulate(values[each] for each in held), strict=True):
                sums[stage] = total
        return sums


def bounded_problem(
    rank_of_stage: tuple[int, ...],
    num_microbatches: int,
    costs: StageCosts,
    memory_limit: Sequence[int] | None,
) -> BoundedProblem:
    """Check that the parts fit together.

    Raises:
        InputError: If the sizes do not fit each other, or a rank cannot hold one micro-batch.
    """
    if num_microbatches < 1:
        raise InputError("must be 1 or more", field="num_microbatches", value=num_microbatches)
    if not rank_of_stage or len(rank_of_stage) != costs.num_stages:
        wrong = f"there are costs of {costs.num_stages} stages"
        raise InputError(wrong, field="rank_of_stage", value=rank_of_stage)
    num_ranks = max(rank_of_stage) + 1
    if set(rank_of_stage) != set(range(num_ranks)):
        raise InputError("every rank holds a stage", field="rank_of_stage", value=rank_of_stage)
    stages = tuple(
        tuple(stage for stage, holder in enumerate(rank_of_stage) if holder == rank)
        for rank in range(num_ranks)
    )
    limits = None if memory_limit is None else tuple(memory_limit)
    if limits is not None and len(limits) != num_ranks:
        raise InputError(f"one value for each of {num_ranks} ranks", field="memory_limit", value=limits)
    for rank, limit in enumerate(limits or ()):
        needed = sum(costs.activation_bytes[stage] for stage in stages[rank])
        if limit < needed:
            message = f"rank {rank} needs {needed}: a micro-batch has an activation in each of its stages"
            raise InputError(message, field="memory_limit", value=limit, hint=f"{needed} or more")
    return BoundedProblem(costs, rank_of_stage, num_microbatches, stages, limits)
