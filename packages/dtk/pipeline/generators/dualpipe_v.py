"""DualPipeV (deepseek-ai/DualPipe; after DeepSeek-V3, arXiv 2412.19437), as torch's `ScheduleDualPipeV`.

Two chunks a rank, placed in a V. A forward of one chunk and a full backward of the other run as one action,
to hide the all-to-all of experts behind compute.
"""

from dtk.pipeline.action import Action
from dtk.pipeline.generators._row import Row, check_sizes
from dtk.pipeline.schedule import Schedule, v_placement

__all__ = ["dualpipe_v"]


def dualpipe_v(num_ranks: int, num_microbatches: int) -> Schedule:
    """Return the DualPipeV schedule. Fewer than 2P micro-batches, which torch refuses, leave gaps.

    Raises:
        InputError: If a size is below 1, or there would be too many actions.
    """
    check_sizes(num_ranks, 2, num_microbatches)
    rows = tuple(_rank_actions(rank, num_ranks, num_microbatches) for rank in range(num_ranks))
    return Schedule("dualpipe-v", v_placement(num_ranks), rows, num_microbatches)


def _rank_actions(rank: int, num_ranks: int, num_microbatches: int) -> tuple[Action, ...]:
    row, down, up = Row(num_microbatches), rank, 2 * num_ranks - 1 - rank
    ranks_below = num_ranks - 1 - rank
    drawn = max(num_microbatches, 2 * num_ranks)

    for _ in range(2 * ranks_below):
        row.forward(down)
    for _ in range(rank + 1):
        row.forward(down)
        row.forward(up)
    for _ in range(ranks_below):
        row.input_grad(up)
        row.weight_grad()
        row.forward(up)

    for step in range(drawn - 2 * num_ranks + rank + 1):
        if step == 0 and ranks_below == 0:
            # On the turning rank the backward needs the forward just before it: apart, they end earlier.
            row.forward(down)
            row.backward(up)
        else:
            row.pair(down, up)
        row.pair(up, down)
    for _ in range(ranks_below):
        row.backward(up)
        row.pair(up, down)

    # Of the last backwards the second half is split, and their weight gradients fill the drain.
    for step in range(2 * (rank + 1)):
        stage = down if step % 2 else up
        if step > rank:
            row.input_grad(stage)
        else:
            row.backward(stage)
    for _ in range(ranks_below):
        row.weight_grad()
        row.input_grad(down)
    return row.finish()
