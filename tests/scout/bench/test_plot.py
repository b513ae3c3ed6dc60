"""The plots are written, whatever rows there are."""

from pathlib import Path

import pytest

from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.plot import plot_roofline, plot_scaling
from dtk.scout.bench.scaling import Point, Scaling
from tests.scout.bench.test_rows import ERRORS, SECONDS, row_of

CONFIG = KernelBenchConfig(batch=3, kv_heads=5, head_dim=48, selected_tokens=777)


def test_the_roofline_names_limits_contenders_and_machine(tmp_path: Path) -> None:
    rows = [
        row_of(SECONDS),
        row_of(SECONDS | {"llama_cpp": 3.0}, group_size=4, errors=ERRORS | {"llama_cpp": 0.0}),
        row_of(SECONDS, errors={"dtk": 0.0}),
    ]
    paths = plot_roofline([row for row in rows if row is not None], CONFIG, "Test CPU", tmp_path)
    assert {path.name for path in paths} == {"roofline.svg", "roofline.png"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["roofline.png", "roofline.svg"]
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "roofline.svg").read_text()
    shape = "batch 3, 5 KV heads, head size 48, 777 selected tokens"
    for text in (shape, "Test CPU", "dtk, fp32", "llama.cpp, fp32", "multiply-adds per byte", "GB/s"):
        assert text in svg


@pytest.mark.parametrize("count", [0, 1, 3])
def test_scaling(count: int, tmp_path: Path) -> None:
    points = [
        Point(256 * 2**i, 4096, 1e-3 * 2**i, 0.9e-3 * 2**i, 1.2e-3 * 2**i, 5, 1e9) for i in range(count)
    ]
    scaling = Scaling("fp32", 4, 1, points, 1.0 if count > 1 else None, points, 1.0, [], False)
    paths = plot_scaling(scaling, CONFIG, "Test CPU", tmp_path)
    assert all(path.stat().st_size > 1000 for path in paths)
    svg = (tmp_path / "scaling.svg").read_text()
    assert "group size 4, 1 thread, Test CPU (measured)" in svg
    assert "batch 3, 5 KV heads, head size 48" in svg
