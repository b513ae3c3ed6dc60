"""ZB-H1 (zero bubble, arXiv 2401.10241): 1F1B with a split backward, at 1F1B's memory."""

from dtk.pipeline.generators._row import Row, check_sizes, one_forward_one_backward
from dtk.pipeline.generators.interleaved import chunk_orders, split_into_groups
from dtk.pipeline.schedule import Schedule, loop_placement

__all__ = ["zb_h1"]


def zb_h1(num_ranks: int, num_microbatches: int, num_chunks: int = 1) -> Schedule:
    """Return the handcrafted ZB-H1: rank r keeps r weight gradients back, to fill its idle time at the end.

    It idles (P-1) (T_F + T_B - T_W), where T_W is the shortest of the three. The paper has one chunk a rank;
    with more, this is the interleaved form that torch calls `InterleavedZeroBubble`.

    Raises:
        InputError: If a size is below 1, or there would be too many actions.
    """
    check_sizes(num_ranks, num_chunks, num_microbatches)
    groups = split_into_groups(num_ranks, num_microbatches, num_ranks)
    rows = []
    for rank in range(num_ranks):
        forwards, backwards = chunk_orders(rank, num_ranks, num_chunks, groups)
        warm_up = (num_chunks - 1) * groups[0] + num_ranks - 1 - rank
        row = Row(num_microbatches)
        rows.append(one_forward_one_backward(row, forwards, backwards, warm_up=warm_up, weight_lag=rank))
    return Schedule("zb-h1", loop_placement(num_ranks, num_chunks), tuple(rows), num_microbatches)
