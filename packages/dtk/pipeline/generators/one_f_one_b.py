"""1F1B (PipeDream-flush, arXiv 2006.09503; Megatron-LM's default). One chunk a rank."""

from dtk.pipeline.generators._row import Row, check_sizes, one_forward_one_backward
from dtk.pipeline.schedule import Schedule, loop_placement

__all__ = ["one_f_one_b"]


def one_f_one_b(num_ranks: int, num_microbatches: int) -> Schedule:
    """Return the 1F1B schedule: rank r starts with P-1-r forwards, then a forward and a backward in turn.

    It idles as long as GPipe, and rank r holds the activations of at most P-r micro-batches. Fewer
    micro-batches than ranks are fine.

    Raises:
        InputError: If a size is below 1, or there would be too many actions.
    """
    check_sizes(num_ranks, 1, num_microbatches)
    rows = []
    for rank in range(num_ranks):
        stages = (rank,) * num_microbatches
        row = Row(num_microbatches)
        rows.append(one_forward_one_backward(row, stages, stages, warm_up=num_ranks - 1 - rank))
    return Schedule("1f1b", loop_placement(num_ranks, 1), tuple(rows), num_microbatches)
