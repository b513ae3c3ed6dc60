"""Tables of all widths: every cell is there, lines fit, rows stay comparable where the terminal allows."""

import io

import pytest
from rich.console import Console

from dtk.cli.table import print_rows

NAMES = ["rank", *(f"time of\ncause {index}" for index in range(10))]
ROWS = [[f"{rank}", *(f"{rank}{index}.5 ms" for index in range(10))] for rank in range(3)]


def printed(width: int, names: list[str] = NAMES, rows: list[list[str]] = ROWS) -> str:
    text = io.StringIO()
    print_rows(Console(file=text, width=width, highlight=False, markup=False), "Title", names, rows)
    return text.getvalue()


@pytest.mark.parametrize(("width", "tables"), [(80, 2), (90, 2), (120, 1), (200, 1)])
def test_a_table_that_is_too_wide_is_cut_and_keeps_its_first_column(width: int, tables: int) -> None:
    text = printed(width)
    assert text.count("rank") == tables
    assert max(map(len, text.splitlines())) <= width
    lines = [line.split() for line in text.splitlines()]
    for row in ROWS:
        cells = [word for line in lines if line[:1] == row[:1] for word in line[1:] if word != "ms"]
        assert [f"{cell} ms" for cell in cells] == row[1:]


def test_a_narrow_terminal_or_a_cell_that_never_fits_gets_a_block_a_row() -> None:
    assert "\ntime of cause 3 13.5 ms\n" in printed(79)
    assert "\nrank  0\nvalue " + "x" * 90 + "\n" in printed(80, ["rank", "value"], [["0", "x" * 90]])
