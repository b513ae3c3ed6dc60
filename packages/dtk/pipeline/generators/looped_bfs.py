"""Breadth-first pipeline parallelism (Lamy-Poirier, arXiv 2211.05953), as torch's `ScheduleLoopedBFS`."""

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.generators._row import check_sizes
from dtk.pipeline.schedule import Schedule, loop_placement

__all__ = ["looped_bfs"]


def looped_bfs(
    num_ranks: int, num_chunks: int, num_microbatches: int, *, reverse_backward: bool = False
) -> Schedule:
    """Return the looped breadth-first schedule: all micro-batches through chunk 0, all through chunk 1, ...

    Every chunk is visited once forward and once backward, which suits sharded parameters; the activations of
    all micro-batches are held at once. The backwards are full ones.

    Args:
        num_ranks: P.
        num_chunks: V.
        num_microbatches: M.
        reverse_backward: Let the backwards meet the micro-batches in descending order, as torch does.

    Raises:
        InputError: If a size is below 1, or there would be too many actions.
    """
    check_sizes(num_ranks, num_chunks, num_microbatches)
    ascending = range(num_microbatches)
    backward_order = ascending[::-1] if reverse_backward else ascending
    rows = []
    for rank in range(num_ranks):
        stages = range(rank, num_ranks * num_chunks, num_ranks)
        forwards = [Action(stage, Kind.FORWARD, m) for stage in stages for m in ascending]
        backwards = [
            Action(stage, Kind.FULL_BACKWARD, m) for stage in reversed(stages) for m in backward_order
        ]
        rows.append((*forwards, *backwards))
    placement = loop_placement(num_ranks, num_chunks)
    settings: dict[str, int | str | bool] = {"reverse_backward": reverse_backward}
    return Schedule("bfs", placement, tuple(rows), num_microbatches, settings)
