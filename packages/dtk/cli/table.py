"""Tables for people: on narrow terminals one block a row instead."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["print_rows"]

_TABLE_COLUMNS = 80


def print_rows(console: Console, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table where it fits whole, else each row as lines of `name value`."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(title)
    # Asked of a console of any width, or it would answer with this one's.
    wanted = console.measure(table, options=console.options.update(width=1000)).maximum
    if console.width >= max(_TABLE_COLUMNS, wanted):
        console.print(table)
        return
    plain_names = [name.replace("\n", " ") for name in names]
    width = max(map(len, plain_names))
    for row in rows:
        lines = (f"{name:<{width}} {cell}" for name, cell in zip(plain_names, row, strict=True))
        console.print("\n".join(["", *lines]), soft_wrap=True)
    console.print()
