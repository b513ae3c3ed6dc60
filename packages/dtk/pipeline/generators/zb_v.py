"""ZB-V (Pipeline Parallelism with Controllable Memory, arXiv 2405.15362; arXiv 2401.10241, section 6).

Two chunks a rank, placed in a V: the first rank holds the first stage and the last. The handcrafted form for
T_F = T_B = T_W, as torch's `ScheduleZBVZeroBubble`; the papers' greedy search for other costs is left out.
"""

from dtk.pipeline.action import Action
from dtk.pipeline.generators._row import Row, check_sizes
from dtk.pipeline.schedule import Schedule, v_placement

__all__ = ["zb_v"]


def zb_v(num_ranks: int, num_microbatches: int) -> Schedule:
    """Return the ZB-V schedule: almost no bubble at 1F1B's memory, where the three times are equal.

    Raises:
        InputError: If a size is below 1, or there would be too many actions.
    """
    check_sizes(num_ranks, 2, num_microbatches)
    rows = tuple(_rank_actions(rank, num_ranks, num_microbatches) for rank in range(num_ranks))
    return Schedule("zb-v", v_placement(num_ranks), rows, num_microbatches)


def _rank_actions(rank: int, num_ranks: int, num_microbatches: int) -> tuple[Action, ...]:
    row, down, up = Row(num_microbatches), rank, 2 * num_ranks - 1 - rank
    # Drawn for a full pipeline at least; the row leaves out what there are no micro-batches for.
    drawn = max(num_microbatches, 2 * num_ranks - 1)

    for _ in range(2 * (num_ranks - rank) - 1):
        row.forward(down)
    for _ in range(rank):
        row.forward(up)
        row.forward(down)
    for _ in range(num_ranks - rank):
        _forward_and_backward(row, up)

    drawn_down = 2 * num_ranks - 1 - rank
    for _ in range(drawn - num_ranks):
        if drawn_down < drawn:
            row.forward(down)
            drawn_down += 1
        _backward(row, down)
        _forward_and_backward(row, up)

    for _ in range(rank):
        row.input_grad(down)
        row.input_grad(up)
    for _ in range(num_ranks - rank):
        row.input_grad(down)
        row.weight_grad(down)
    for stage in (up, down):
        for _ in range(rank):
            row.weight_grad(stage)
    return row.finish()


def _forward_and_backward(row: Row, stage: int) -> None:
    row.forward(stage)
    _backward(row, stage)


def _backward(row: Row, stage: int) -> None:
    row.input_grad(stage)
    row.weight_grad(stage)
