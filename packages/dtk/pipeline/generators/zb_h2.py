"""ZB-H2 (zero bubble, arXiv 2401.10241): no gaps if times are equal, at twice 1F1B's memory. One chunk."""

from dtk.pipeline.generators._row import Row, check_sizes, one_forward_one_backward
from dtk.pipeline.schedule import Schedule, loop_placement

__all__ = ["zb_h2"]


def zb_h2(num_ranks: int, num_microbatches: int) -> Schedule:
    """Return the handcrafted ZB-H2: rank r starts with 2 (P-1-r) forwards and holds 2r weight gradients back.

    Where T_F = T_B = T_W, and for M >= 2P - 1, every rank works from its first action to its last without a
    gap. The ranks start and end one after another, and the paper counts the longest of their own times, which
    exceeds M (T_F + T_B + T_W) by (P-1) (T_F + T_B - 2 T_W): without a barrier at the optimizer step, a rank
    can begin the next iteration when it is through.

    Raises:
        InputError: If a size is below 1, or there would be too many actions.
    """
    check_sizes(num_ranks, 1, num_microbatches)
    rows = []
    for rank in range(num_ranks):
        stages = (rank,) * num_microbatches
        row, warm_up = Row(num_microbatches), 2 * (num_ranks - 1 - rank)
        rows.append(one_forward_one_backward(row, stages, stages, warm_up=warm_up, weight_lag=2 * rank))
    return Schedule("zb-h2", loop_placement(num_ranks, 1), tuple(rows), num_microbatches)
