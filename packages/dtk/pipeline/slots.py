"""A small schedule in time slots, as papers draw it: a row a rank, a column a unit of time.

`F12` is the forward of the rank's chunk 1 for micro-batch 2; with more than ten chunks or micro-batches it is
`F1.2`. What takes several slots goes on in dashes, and idle slots are dots.
"""

import math
from collections.abc import Iterable, Sequence

from rich.text import Text

from dtk.pipeline.action import Action
from dtk.pipeline.draw import CATEGORIES, category_of, chunk_of_stage, timeline_of
from dtk.pipeline.simulate.result import StreamKind, Task
from dtk.timeline.axis import format_time
from dtk.timeline.palette import looks
from dtk.timeline.terminal import draw_terminal

__all__ = ["draw_slots", "draw_tasks"]


def draw_tasks(tasks: Iterable[Task], *, title: str, width: int) -> Text:
    """Return what the ranks compute when: in time slots where they fit into the width, else in columns.

    Args:
        tasks: From `simulate_tasks`.
        title: The first line.
        width: In characters.
    """
    tasks = list(tasks)
    slots = draw_slots(tasks, width=width)
    if slots is None:
        computed = [task for task in tasks if task.stream is StreamKind.COMPUTE]
        return draw_terminal(timeline_of(computed, title=title, arrows=False), width=width)
    return Text("\n").join([Text(f"{title} (simulated)", style="bold"), slots])


def draw_slots(tasks: Iterable[Task], *, width: int) -> Text | None:
    """Return the compute streams in slots of the largest unit that divides all times; None if too wide.

    Args:
        tasks: From `simulate_tasks`.
        width: Of the lines, at most, in characters.
    """
    computed = [task for task in tasks if task.stream is StreamKind.COMPUTE]
    timed = [task for task in computed if task.start_ns < task.end_ns]
    unit = math.gcd(*(time for task in timed for time in (task.start_ns, task.end_ns)))
    num_slots = max(task.end_ns for task in timed) // unit if unit else 0
    if not 0 < num_slots <= width:
        return None
    names = _names(timed)
    # A task of n slots has n cells and the blanks between them.
    cell = max(_cell_width(len(name), (task.end_ns - task.start_ns) // unit) for name, task in names)
    num_ranks = max(task.rank for task in computed) + 1
    label_width = len(f"r{num_ranks - 1} ")
    if label_width + num_slots * (cell + 1) - 1 > width:
        return None
    rows = [
        _row(rank, [(name, task) for name, task in names if task.rank == rank], unit, cell, num_slots)
        for rank in range(num_ranks)
    ]
    note = f"{num_slots} slots of {format_time(unit)}"
    if untimed := len(computed) - len(timed):
        note += f"; {untimed} actions that take no time are not shown"
    labelled = [Text(f"r{rank}".ljust(label_width)) + row for rank, row in enumerate(rows)]
    return Text("\n").join([*labelled, Text(note)])


def _names(tasks: Sequence[Task]) -> list[tuple[str, Task]]:
    chunks = chunk_of_stage(tasks)
    parts = [part for task in tasks if task.action for part in task.action.parts]
    single_digits = all(chunks[part.stage] < 10 and (part.microbatch or 0) < 10 for part in parts)
    dot = "" if single_digits else "."

    def name_of(part: Action) -> str:
        return f"{part.kind}{chunks[part.stage]}{dot}{part.microbatch}"

    return [("+".join(map(name_of, task.action.parts)) if task.action else "OPT", task) for task in tasks]


def _cell_width(length: int, num_slots: int) -> int:
    """Return how wide a cell must be for a name over so many slots: n cells and n - 1 blanks hold it."""
    return max(1, math.ceil((length + 1) / num_slots) - 1)


def _row(rank: int, named: Sequence[tuple[str, Task]], unit: int, cell: int, num_slots: int) -> Text:
    look = looks(CATEGORIES)
    row = Text()
    slot = 0

    def idle(until: int) -> None:
        for _ in range(slot, until):
            row.append("." * cell, style="dim")
            row.append(" ")

    for name, task in sorted(named, key=lambda one: one[1].start_ns):
        start, end = task.start_ns // unit, task.end_ns // unit
        idle(start)
        one = look[category_of(task)]
        row.append(name.ljust((end - start) * (cell + 1) - 1, "-"), style=f"{one.ink} on {one.colour}")
        row.append(" ")
        slot = end
    idle(num_slots)
    row.rstrip()
    return row
