"""A simulated schedule as a `Timeline`, for files, viewers and terminals.

A rank is a process; its tracks are the compute stream, a stream for each rank that it sends to, gathers and
reductions. Arrows lead from what was computed through its transfer to what waited for it.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.simulate.result import MemoryKind, MemoryStep, StreamKind, Task
from dtk.timeline import Counter, Flow, Span, Timeline, Track
from dtk.timeline.model import ArgumentValue

__all__ = ["CATEGORIES", "category_of", "chunk_of_stage", "timeline_of"]

# In the order in which they take their colours.
CATEGORIES: Final = ("F", "B", "I", "W", "F+B", "optimizer", "transfer", "gather", "reduction")

_BACKWARDS: Final = (Kind.FULL_BACKWARD, Kind.INPUT_GRAD)
_Output = tuple[bool, int, int]  # whether it is a gradient, the stage, the micro-batch


def timeline_of(
    tasks: Iterable[Task],
    *,
    title: str,
    memory: Iterable[MemoryStep] = (),
    num_ranks: int | None = None,
    arrows: bool = True,
) -> Timeline:
    """Return the timeline of a simulation.

    Spans are called by kind, stage and micro-batch: `F2.0` is torch's `2F0`. A transfer has the name of what
    it carries. Arrows to or from what takes no time are left out.

    Args:
        tasks: From `simulate_tasks`.
        title: Of the picture.
        memory: From `simulate_memory`: a counter for each kind, and one for their sum.
        num_ranks: For ranks without tasks above the last one with any.
        arrows: Whether it has flows, which only viewers of traces show.

    Returns:
        Basis `simulated`; pid and place of a rank are its number.
    """
    tasks = list(tasks)
    chunks = chunk_of_stage(tasks)
    tracks = {(task.rank, task.stream, task.peer): _track(task) for task in tasks}
    spans = [_span(task, tracks[task.rank, task.stream, task.peer], chunks) for task in tasks]
    num_ranks = max([num_ranks or 0, *(task.rank + 1 for task in tasks)])
    return Timeline(
        title,
        "simulated",
        tuple(spans),
        counters=tuple(_counters(memory)),
        flows=tuple(_flows(tasks, spans)) if arrows else (),
        track_order=_track_order(tracks, num_ranks),
        category_order=CATEGORIES,
    )


def category_of(task: Task) -> str:
    """Return the category of a task, one of `CATEGORIES`."""
    if task.stream is StreamKind.SEND:
        return "transfer"
    if task.stream is StreamKind.UNSHARD:
        return "gather"
    if task.stream is StreamKind.REDUCE:
        return "reduction"
    if task.action is None:
        return "optimizer"
    return "F+B" if task.action.sub_actions else task.action.kind.value


def chunk_of_stage(tasks: Iterable[Task]) -> dict[int, int]:
    """Return for each stage its place among the stages that its rank computes."""
    stages: dict[int, set[int]] = {}
    for task in tasks:
        if task.stream is StreamKind.COMPUTE and task.action is not None:
            stages.setdefault(task.rank, set()).update(part.stage for part in task.action.parts)
    return {stage: chunk for held in stages.values() for chunk, stage in enumerate(sorted(held))}


def _span(task: Task, track: Track, chunks: dict[int, int]) -> Span:
    category = category_of(task)
    action = task.action
    if action is None:
        return Span(track, "optimizer", task.start_ns, task.end_ns, category)
    args: dict[str, ArgumentValue]
    if action.sub_actions:
        name = "+".join(map(_part_name, action.sub_actions))
        args = {"action": str(action)}
    else:
        args = {"stage": action.stage, "chunk": chunks.get(action.stage, 0)}
        name = f"{category} {action.stage}"
        if action.microbatch is not None:
            args["microbatch"] = action.microbatch
            name = _part_name(action)
    return Span(track, name, task.start_ns, task.end_ns, category, args)


def _part_name(action: Action) -> str:
    return f"{action.kind}{action.stage}.{action.microbatch}"


def _track(task: Task) -> Track:
    thread = task.stream.value if task.peer is None else f"send to rank {task.peer}"
    return Track(f"rank {task.rank}", thread)


def _track_order(used: dict[tuple[int, StreamKind, int | None], Track], num_ranks: int) -> tuple[Track, ...]:
    """Return the tracks in use, and the compute stream of every rank."""
    streams = list(StreamKind)
    compute = {
        (rank, StreamKind.COMPUTE, None): Track(f"rank {rank}", "compute") for rank in range(num_ranks)
    }
    order = {
        (rank, streams.index(stream), peer or 0): track
        for (rank, stream, peer), track in (used | compute).items()
    }
    return tuple(track for _, track in sorted(order.items()))


def _flows(tasks: Sequence[Task], spans: Sequence[Span]) -> Iterable[Flow]:
    """Yield arrows between ranks: to a transfer and from it, or past it where it takes no time."""
    makers: dict[_Output, tuple[int, Span]] = {}
    transfers: dict[_Output, Span] = {}
    for task, span in zip(tasks, spans, strict=True):
        for output in _outputs(task):
            if task.stream is StreamKind.SEND:
                transfers[output] = span
            else:
                makers[output] = task.rank, span
    for (is_gradient, stage, microbatch), (rank, target) in makers.items():
        source_key = is_gradient, stage + 1 if is_gradient else stage - 1, microbatch
        if source_key not in makers or makers[source_key][0] == rank:
            continue
        path = [makers[source_key][1], *filter(None, [transfers.get(source_key)]), target]
        name = "gradient" if is_gradient else "activation"
        if all(span.start_ns < span.end_ns for span in path):
            yield from (Flow(one, other, name) for one, other in pairwise(path))


def _outputs(task: Task) -> Iterable[_Output]:
    if task.action is None or task.stream not in (StreamKind.COMPUTE, StreamKind.SEND):
        return
    for part in task.action.parts:
        if part.kind is Kind.FORWARD or part.kind in _BACKWARDS:
            yield part.kind in _BACKWARDS, part.stage, part.microbatch or 0


def _counters(memory: Iterable[MemoryStep]) -> Iterable[Counter]:
    """Yield for each rank a counter of each kind that it holds, and one of their sum if they are several."""
    by_rank: dict[int, dict[int, dict[MemoryKind, int]]] = {}
    for step in memory:
        by_rank.setdefault(step.rank, {}).setdefault(step.time_ns, {})[step.kind] = step.held_bytes
    for rank, changes in sorted(by_rank.items()):
        points: dict[MemoryKind, list[tuple[int, int]]] = {}
        total: list[tuple[int, int]] = []
        held: dict[MemoryKind, int] = {}
        for time, levels in sorted(changes.items()):
            held |= levels
            for kind, level in levels.items():
                points.setdefault(kind, []).append((time, level))
            total.append((time, sum(held.values())))
        process = f"rank {rank}"
        for kind in MemoryKind:
            if kind in points:
                yield Counter(process, kind.value.replace("_", " "), tuple(points[kind]))
        if len(points) > 1:
            yield Counter(process, "sum", tuple(total))
