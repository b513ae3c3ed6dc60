"""GPipe (arXiv 1811.06965): all forwards, then all backwards. One chunk a rank."""

from dtk.pipeline.generators._row import Row, check_sizes, one_forward_one_backward
from dtk.pipeline.schedule import Schedule, loop_placement

__all__ = ["gpipe"]


def gpipe(num_ranks: int, num_microbatches: int) -> Schedule:
    """Return GPipe's schedule.

    Every rank holds the activations of all micro-batches at once. The backwards run in ascending order, as
    torch's `ScheduleGPipe` has them.

    Raises:
        InputError: If a size is below 1, or there would be too many actions.
    """
    check_sizes(num_ranks, 1, num_microbatches)
    rows = []
    for rank in range(num_ranks):
        stages = (rank,) * num_microbatches
        row = Row(num_microbatches)
        rows.append(one_forward_one_backward(row, stages, stages, warm_up=num_microbatches))
    return Schedule("gpipe", loop_placement(num_ranks, 1), tuple(rows), num_microbatches)
