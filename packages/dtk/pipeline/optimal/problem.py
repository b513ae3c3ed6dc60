"""What an optimal scheduler is asked: stages on ranks, their costs, micro-batches, and each rank's memory."""

from dataclasses import dataclass
from typing import Self

from dtk.errors import InputError
from dtk.pipeline.costs import StageCosts

__all__ = ["SchedulingProblem"]

MAX_TASKS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SchedulingProblem:
    """Which schedule of these stages ends first within the memory?

    Forwards, input gradients and weight gradients are placed freely; parameters count as resident, and the
    optimizer is left out. The memory is that of `activation_bytes` and `weight_grad_bytes` alone; where both
    are 1 on every stage, the limit is in chunk activations, as the papers count them.

    Attributes:
        rank_of_stage: For each stage the rank that holds it.
        num_microbatches: M.
        costs: Times and bytes by stage.
        memory_limit: For each rank, in the units of the costs' bytes.
    """

    rank_of_stage: tuple[int, ...]
    num_microbatches: int
    costs: StageCosts
    memory_limit: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that the parts fit together.

        Raises:
            InputError: If they do not, or no schedule stays within the memory.
        """
        if self.num_microbatches < 1:
            raise InputError("must be 1 or more", field="num_microbatches", value=self.num_microbatches)
        if not self.rank_of_stage or set(self.rank_of_stage) != set(range(len(self.memory_limit))):
            raise InputError(
                "every rank needs a stage and a memory limit", field="rank_of_stage", value=self.rank_of_stage
            )
        if self.costs.num_stages != self.num_stages:
            raise InputError(
                f"costs of {self.costs.num_stages} stages for {self.num_stages} stages", field="costs"
            )
        if self.num_tasks > MAX_TASKS:
            raise InputError(
                f"at most {MAX_TASKS} actions can be scheduled",
                field="num_microbatches",
                value=self.num_microbatches,
            )
        for rank, (needed, limit) in enumerate(zip(self.least_memory, self.memory_limit, strict=True)):
            if limit < needed:
                raise InputError(
                    f"rank {rank} needs {needed} for one micro-batch alone, so no schedule meets the limit",
                    field="memory_limit",
                    value=limit,
                    hint=f"allow {needed} or more",
                )

    @classmethod
    def in_chunks(
        cls, *, rank_of_stage: tuple[int, ...], num_microbatches: int, costs: StageCosts, chunks: int
    ) -> Self:
        """Return the problem whose memory limit is a number of chunk activations, the same on each rank."""
        stages = len(rank_of_stage)
        units = StageCosts.of(
            stages,
            **{
                name: getattr(costs, name) for name in StageCosts.__dataclass_fields__ if name.endswith("_ns")
            },
            activation_bytes=1,
            weight_grad_bytes=1,
        )
        limit = (chunks,) * (max(rank_of_stage) + 1)
        return cls(
            rank_of_stage=rank_of_stage, num_microbatches=num_microbatches, costs=units, memory_limit=limit
        )

    @property
    def num_stages(self) -> int:
        """The number of stages, S."""
        return len(self.rank_of_stage)

    @property
    def num_ranks(self) -> int:
        """The number of ranks, P."""
        return len(self.memory_limit)

    @property
    def num_tasks(self) -> int:
        """Forwards, input gradients and weight gradients, 3 * S * M."""
        return 3 * self.num_stages * self.num_microbatches

    @property
    def least_memory(self) -> tuple[int, ...]:
        """What each rank needs for one micro-batch, which runs I and W from the deepest chunk up."""
        costs = self.costs
        held = [0] * self.num_ranks
        needed = [0] * self.num_ranks
        for stage, rank in enumerate(self.rank_of_stage):
            later = (
                held[rank] + costs.weight_grad_bytes[stage]
            )  # the stages before this one still hold theirs
            held[rank] += costs.activation_bytes[stage]
            needed[rank] = max(needed[rank], held[rank], later)
        return tuple(needed)
