"""Tables for people: cut into several where one is too wide, on narrow terminals one block a row instead."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["print_rows"]

_TABLE_COLUMNS = 80


def print_rows(console: Console, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, or several with some of the columns each, or each row as lines of `name value`."""
    console.print(title)
    tables = _tables(console, names, rows) if console.width >= _TABLE_COLUMNS else []
    for table in tables:
        console.print(table)
    if tables:
        return
    plain_names = [name.replace("\n", " ") for name in names]
    width = max(map(len, plain_names))
    for row in rows:
        lines = (f"{name:<{width}} {cell}" for name, cell in zip(plain_names, row, strict=True))
        console.print("\n".join(["", *lines]), soft_wrap=True)
    console.print()


def _tables(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Table]:
    """Return as few tables as fit, each beginning with the first column; none if no cut helps."""
    columns = range(1, len(names))
    # Asked of a console of any width, or it would answer with this one's.
    wide = console.options.update(width=1000)
    for count in range(1, len(columns) + 1):
        share = -(-len(columns) // count)
        parts = [columns[start : start + share] for start in range(0, len(columns), share)]
        tables = [_table(names, rows, (0, *part)) for part in parts]
        if all(console.measure(table, options=wide).maximum <= console.width for table in tables):
            return tables
    return []


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(names[column], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[column] for column in columns))
    return table
