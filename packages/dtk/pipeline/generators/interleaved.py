"""Interleaved 1F1B (Megatron-LM, arXiv 2104.04473) with a group size. Two or more chunks a rank."""

from dtk.errors import InputError
from dtk.pipeline.generators._row import Row, check_positive, check_sizes, one_forward_one_backward
from dtk.pipeline.schedule import Schedule, loop_placement

__all__ = ["chunk_orders", "interleaved", "split_into_groups"]


def interleaved(
    num_ranks: int, num_chunks: int, num_microbatches: int, *, group_size: int | None = None
) -> Schedule:
    """Return interleaved 1F1B: a group of micro-batches goes through chunk after chunk, then the next group.

    Rank r starts with (V-1) G + 2 (P-1-r) forwards. It idles 1/V of what 1F1B does, sends V times as much,
    and holds more activations: (V-1) G + 2 (P-1) + 1 chunks on rank 0.

    Args:
        num_ranks: P.
        num_chunks: V.
        num_microbatches: M.
        group_size: G, P or more (Megatron's `microbatch_group_size_per_vp_stage`). None stands for P.

    Raises:
        InputError: If a size is below 1, a group smaller than P, or there would be too many actions.
    """
    check_sizes(num_ranks, num_chunks, num_microbatches)
    size = num_ranks if group_size is None else group_size
    check_positive("group_size", size)
    if size < num_ranks:
        raise InputError(
            f"must be the number of ranks ({num_ranks}) or more: ranks can deadlock on smaller groups",
            field="group_size",
            value=group_size,
        )
    groups = split_into_groups(num_ranks, num_microbatches, size)
    rows = []
    for rank in range(num_ranks):
        forwards, backwards = chunk_orders(rank, num_ranks, num_chunks, groups)
        warm_up = (num_chunks - 1) * groups[0] + 2 * (num_ranks - 1 - rank)
        row = Row(num_microbatches)
        rows.append(one_forward_one_backward(row, forwards, backwards, warm_up=warm_up))
    placement = loop_placement(num_ranks, num_chunks)
    return Schedule("interleaved", placement, tuple(rows), num_microbatches, {"group_size": size})


def split_into_groups(num_ranks: int, num_microbatches: int, group_size: int) -> list[int]:
    """Return the sizes of the groups, larger ones first, as equal as can be.

    There are as few groups as hold at most `group_size` each, unless these would come out smaller than P:
    ranks can deadlock on a group that is too short to fill the pipeline. Then there are fewer, larger ones,
    as torch's `ScheduleInterleaved1F1B` makes them (it wants M to be a multiple of their number). Fewer
    micro-batches than ranks make one group.
    """
    num_groups = -(-num_microbatches // group_size)
    if num_microbatches // num_groups < num_ranks:
        num_groups = max(1, num_microbatches // group_size)
    small, larger = divmod(num_microbatches, num_groups)
    return [small + 1] * larger + [small] * (num_groups - larger)


def chunk_orders(
    rank: int, num_ranks: int, num_chunks: int, groups: list[int]
) -> tuple[list[int], list[int]]:
    """Return the stages of a rank's forwards and of its backwards, group by group, chunk by chunk."""
    stages = range(rank, num_ranks * num_chunks, num_ranks)
    forwards = [stage for size in groups for stage in stages for _ in range(size)]
    backwards = [stage for size in groups for stage in reversed(stages) for _ in range(size)]
    return forwards, backwards
