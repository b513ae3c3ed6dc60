"""What each rank of a run does: a schedule by name, with gathers and reductions if weights are sharded."""

from functools import lru_cache
from typing import Any

from dtk.errors import InputError
from dtk.pipeline.action import Action, Kind
from dtk.pipeline.generators._row import check_sizes
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.iteration.gathering import gather_each_pass
from dtk.pipeline.iteration.run import FSDP, ScheduleChoice, TrainingRun
from dtk.pipeline.lowering import add_parameters
from dtk.pipeline.schedule import Schedule

__all__ = ["make_run_schedule"]


def make_run_schedule(run: TrainingRun) -> Schedule:
    """Return the schedule of a run; gathers and reductions are in it where weights are sharded.

    Raises:
        InputError: If the schedule does not exist for the run's sizes.
    """
    return _schedule(
        run.schedule,
        run.layout.pipeline_parallel,
        run.layout.chunks,
        run.num_microbatches,
        run.sharding.stage == 3,
    )


# A search comes back to the same few orders; each may be of some ten megabytes.
@lru_cache(maxsize=32)
def _schedule(
    choice: ScheduleChoice, num_ranks: int, num_chunks: int, num_microbatches: int, sharded: bool
) -> Schedule:
    if choice.name == FSDP:
        if num_ranks > 1:
            message = f"{FSDP} has a single pipeline rank"
            raise InputError(message, field="pipeline_parallel", value=num_ranks)
        schedule = _depth_first(num_chunks, num_microbatches)
    else:
        given: dict[str, Any] = {"unit": choice.unit, "group_size": choice.group_size, "split": choice.split}
        heeded = SCHEDULES[choice.name].options if choice.name in SCHEDULES else frozenset(given)
        schedule = make_schedule(
            choice.name,
            num_ranks=num_ranks,
            num_chunks=num_chunks,
            num_microbatches=num_microbatches,
            **{key: value for key, value in given.items() if key in heeded},
        )
    if not sharded:
        return schedule
    if choice.gather == "pass":
        return gather_each_pass(schedule)
    ahead = choice.resident_chunks - 1
    return add_parameters(
        schedule,
        resident_chunks=choice.resident_chunks,
        lookahead=ahead,
        reduce=choice.reduce,
        unit=num_microbatches if choice.name not in {"zeropp", "interleaved"} else None,
    )


def _depth_first(num_stages: int, num_microbatches: int) -> Schedule:
    """Return a single rank that takes each micro-batch forward and backward through all its stages."""
    check_sizes(1, num_stages, num_microbatches)
    row = []
    for microbatch in range(num_microbatches):
        row += [Action(stage, Kind.FORWARD, microbatch) for stage in range(num_stages)]
        row += [Action(stage, Kind.FULL_BACKWARD, microbatch) for stage in reversed(range(num_stages))]
    return Schedule(FSDP, (0,) * num_stages, (tuple(row),), num_microbatches)
