"""The benchmark's tables at several widths: no number and no header is cut or broken."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from dtk.cli.scout_bench_show import show
from dtk.scout.bench.kernel import KernelBenchReport
from dtk.scout.bench.scaling import Point, Scaling
from tests.scout.bench.test_rows import ERRORS, SECONDS, row_of

NAMES = ["roofline", "llama.cpp", "percentile", "dtk over", "best way", "reads"]


def shown(width: int, *, scale: float = 1.0, threads: int = 1) -> tuple[str, list[str]]:
    """Return what is printed, and all numbers that must be in it."""
    row = row_of(SECONDS | {"llama_cpp": 3.0}, errors=ERRORS | {"llama_cpp": 0.0})
    assert row is not None
    rates = {
        "read_bandwidth_bytes_per_s": 412.34e9 * scale,
        "roofline_bytes_per_s": 398.76e9 * scale,
        "kv_bandwidth_bytes_per_s": 387.65e9 * scale,
        "torch_best_bytes_per_s": 123.45e9 * scale,
        "llama_cpp_bytes_per_s": 111.19e9 * scale,
    }
    row = dataclasses.replace(
        row, **rates, torch_best_name="torch_sdpa_repeated", speedup_over_torch=3.14, threads=threads
    )
    points = [Point(65_536, 131_072, 1.2345678, 1.1111111, 1.3333333, 9, 98.76e9 * scale)]
    scaling = Scaling("fp32", 4, threads, points, 1.0, points, 1.0, [], False)
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, markup=False)
    show(console, KernelBenchReport(rows=[row], scaling=scaling, llama_cpp="timed"))
    numbers = [f"{rate / 1e9:.2f}" for rate in rates.values()]
    other = ["3.14", "sdpa_repeated", "65536", "131072", "1234.568", "1111.111..1333.333"]
    return text.getvalue(), [*numbers, *other]


@pytest.mark.parametrize("width", [40, 79, 80, 120])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_everything_is_there_and_fits(width: int, scale: float) -> None:
    text, numbers = shown(width, scale=scale)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    words = text.split()
    for number in numbers:
        assert number in words
    for name in NAMES:
        assert name in text


@pytest.mark.parametrize(("width", "blocks"), [(40, True), (79, True), (80, False), (120, False)])
def test_a_block_a_row_on_narrow_terminals(width: int, blocks: bool) -> None:
    text, _ = shown(width)
    assert bool(re.search(r"^of the roofline +\d+%$", text, re.MULTILINE)) is blocks


@pytest.mark.parametrize(("threads", "words"), [(1, "1 thread (measured"), (2, "2 threads (measured")])
def test_one_thread_is_no_threads(threads: int, words: str) -> None:
    assert shown(120, threads=threads)[0].count(words) == 2
