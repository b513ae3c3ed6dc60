"""One configuration of one method: every option that a search decides on."""

from dataclasses import dataclass

from dtk.pipeline.iteration.run import ScheduleChoice, TrainingRun
from dtk.workload.flops import Recomputation
from dtk.workload.job import Layout, TrainingJob
from dtk.workload.states import Sharding
from dtk.zeropp.planning.problem import PlanProblem

__all__ = ["Candidate"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration.

    Attributes:
        schedule: The pipeline schedule, with U and how parameters are gathered.
        sharding: What data-parallel ranks share.
        data_parallel: Data-parallel ranks.
        tensor_parallel: Tensor-parallel ranks, t.
        pipeline_parallel: Pipeline ranks, P.
        chunks: Chunks of a rank, V.
        micro_batch: Sequences of a micro-batch, b.
        recomputation: What the backward pass computes again.
        keep_last_chunk: Whether the last stage keeps its activations under full recomputation.
        replicas_outermost: Whether replicas of a sharded group lie outside the pipeline.
    """

    schedule: ScheduleChoice
    sharding: Sharding
    data_parallel: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    chunks: int = 1
    micro_batch: int = 1
    recomputation: Recomputation = "none"
    keep_last_chunk: bool = False
    replicas_outermost: bool = False

    @property
    def num_replicas(self) -> int:
        """Replicas of each group that shards model states."""
        return self.data_parallel // self.sharding.ranks if self.sharding.stage else self.data_parallel

    @property
    def hybrid(self) -> str | None:
        """What replicas of a group that shards everything do; None where there are none."""
        if self.sharding.stage < 3 or self.num_replicas == 1:
            return None
        return "zero3-zero1" if self.sharding.optimizer_replicas > 1 else "zero3-dp"

    @property
    def splits_backward(self) -> bool:
        """Whether weight gradients run apart from input gradients."""
        return self.schedule.splits_backward

    @property
    def stage_key(self) -> tuple[object, ...]:
        """What the times of its stages depend on."""
        layout = self.tensor_parallel, self.pipeline_parallel, self.chunks
        backward = self.recomputation, self.keep_last_chunk, self.schedule.splits_backward
        return (*layout, self.micro_batch, *backward)

    @property
    def family(self) -> tuple[object, ...]:
        """What makes it another plan and not a variant of the same."""
        layout = self.tensor_parallel, self.pipeline_parallel, self.chunks, self.sharding.ranks
        return (*layout, self.micro_batch, self.recomputation)

    def rank_of_stage(self) -> list[int]:
        """Return for each stage its pipeline rank."""
        ranks, stages = self.pipeline_parallel, self.pipeline_parallel * self.chunks
        if self.schedule.name == "zb-v":
            return [stage if stage < ranks else stages - 1 - stage for stage in range(stages)]
        return [stage % ranks for stage in range(stages)]

    def run(self, problem: PlanProblem) -> TrainingRun:
        """Return the training run that this is.

        Raises:
            InputError: If it does not cut model, batch or machine evenly.
        """
        job = TrainingJob(
            global_batch=problem.global_batch,
            sequence_tokens=problem.sequence_tokens,
            micro_batch=self.micro_batch,
            recipe=problem.recipe,
            recomputation=self.recomputation,
            flash_attention=problem.flash_attention,
            dropout=problem.dropout,
        )
        layout = Layout(
            data_parallel=self.data_parallel,
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            chunks=self.chunks,
            sequence_parallel=self.tensor_parallel > 1,
        )
        return TrainingRun(
            problem.shape,
            job,
            layout,
            problem.machine,
            problem.stack,
            self.sharding,
            self.schedule,
            replicas_outermost=self.replicas_outermost,
            keep_last_chunk=self.keep_last_chunk,
            profiles=problem.profiles,
        )
