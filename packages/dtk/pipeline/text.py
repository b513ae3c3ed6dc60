"""Schedules as text, in the form that torch's pipelining reads and writes: one row of CSV a rank.

A cell holds an action (`2F0`); an empty cell, which torch writes where a rank waits, means nothing here.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dtk.errors import InputError
from dtk.pipeline.action import Action
from dtk.pipeline.schedule import MAX_ACTIONS, Schedule

__all__ = ["schedule_from_text", "schedule_to_text"]


class _Cell(NamedTuple):
    row: int
    column: int
    action: Action

    def error(self, message: str, hint: str | None = None) -> InputError:
        where = f"row {self.row}, column {self.column}"
        return InputError(message, field=where, value=str(self.action), hint=hint)


def schedule_to_text(schedule: Schedule) -> str:
    """Return one line a rank, its actions separated by commas."""
    return "".join(",".join(map(str, row)) + "\n" for row in schedule.actions)


def schedule_from_text(text: str, *, name: str = "text") -> Schedule:
    """Read a schedule; the ranks of its stages and its number of micro-batches follow from its actions.

    Whether the schedule is complete and can run is the validator's to say.

    Args:
        text: One line a rank, from rank 0 on.
        name: The schedule's name, for reports.

    Raises:
        InputError: Naming row and column (from 1 on) if a cell is no action, a stage is on two ranks, or the
            number of a stage or micro-batch cannot be right; naming the row if it is empty.
    """
    rows = list(_read_rows(text))
    if not rows:
        raise InputError("holds no row", field="schedule", hint="one line a rank, as in 0F0,0I0,0W0")
    actions = tuple(tuple(cell.action for cell in row) for row in rows)
    return Schedule(name, _rank_of_stage(rows), actions, _num_microbatches(rows))


def _read_rows(text: str) -> Iterator[list[_Cell]]:
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff").rstrip(), newline=""), strict=True)
    count = 0
    try:
        for row, fields in enumerate(reader, start=1):
            cells = [
                _read_cell(row, column, field) for column, field in enumerate(fields, 1) if field.strip()
            ]
            if not cells:
                raise InputError(
                    "holds no action", field=f"row {row}", hint="every rank holds a stage or more"
                )
            count += len(cells)
            if count > MAX_ACTIONS:
                raise InputError(f"holds more than {MAX_ACTIONS} actions", field="schedule")
            yield cells
    except csv.Error as error:
        raise InputError(f"is no CSV: {error}", field=f"row {reader.line_num}") from error


def _read_cell(row: int, column: int, text: str) -> _Cell:
    try:
        return _Cell(row, column, Action.parse(text))
    except InputError as error:
        where = f"row {row}, column {column}"
        raise InputError(error.message, field=where, value=error.value, hint=error.hint) from error


def _rank_of_stage(rows: Sequence[Sequence[_Cell]]) -> tuple[int, ...]:
    first: dict[int, _Cell] = {}
    highest = rows[0][0], -1
    for cell in (cell for row in rows for cell in row):
        for part in cell.action.parts:
            earlier = first.setdefault(part.stage, cell)
            if earlier.row != cell.row:
                raise cell.error(
                    f"stage {part.stage} is on row {earlier.row} too (column {earlier.column})",
                    hint="a stage belongs to one rank",
                )
            highest = max(highest, (cell, part.stage), key=lambda one: one[1])
    cell, last = highest
    if len(first) != last + 1:
        missing = next(stage for stage in range(last) if stage not in first)
        raise cell.error(f"names stage {last}, but no row has stage {missing}", hint="stages count from 0")
    return tuple(first[stage].row - 1 for stage in range(last + 1))


def _num_microbatches(rows: Sequence[Sequence[_Cell]]) -> int:
    # A complete schedule has at least two actions for every micro-batch, so that a number beyond is a slip; a
    # reader must not reserve memory for it.
    limit = sum(map(len, rows))
    highest = -1
    for cell in (cell for row in rows for cell in row):
        for part in cell.action.parts:
            if part.microbatch is not None and part.microbatch >= limit:
                raise cell.error(f"names micro-batch {part.microbatch} in a schedule of {limit} actions")
            highest = max(highest, -1 if part.microbatch is None else part.microbatch)
    if highest < 0:
        raise InputError("holds no compute action", field="schedule")
    return highest + 1
