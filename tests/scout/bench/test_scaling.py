"""How time grows: the arithmetic, and a small run in which every size is checked."""

import math

import pytest
import torch

from dtk.scout.bench import scaling_run
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.ours import OurKernel
from dtk.scout.bench.scaling import Point, log_log_slope, token_counts
from dtk.scout.bench.timing import Timings, interleave


def points(*times: tuple[int, float]) -> list[Point]:
    return [Point(tokens, 1, seconds, seconds, seconds, 1, 1.0) for tokens, seconds in times]


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_slope_is_the_power(power: float) -> None:
    slope = log_log_slope(points(*((tokens, 3 * tokens**power) for tokens in (256, 1000, 65536))))
    assert slope == pytest.approx(power, abs=1e-12)


def test_the_slope_is_a_least_squares_fit() -> None:
    # x = 0, 1, 2 and y = 0, 0, 3 (in e-folds): slope 1.5.
    slope = log_log_slope([Point(1, 1, 1.0, 1, 1, 1, 1), *points((3, 1.0), (9, 27.0))])
    assert slope == pytest.approx(1.5 * math.log(3) / math.log(3))


def test_one_point_has_no_slope() -> None:
    assert log_log_slope(points((256, 1.0))) is None


@pytest.mark.parametrize(
    ("smallest", "largest", "expected"),
    [(256, 2048, [256, 512, 1024, 2048]), (256, 600, [256, 512, 600]), (64, 64, [64])],
)
def test_sizes_double_up_to_the_largest(smallest: int, largest: int, expected: list[int]) -> None:
    assert token_counts(smallest, largest) == expected


CONFIG = KernelBenchConfig(
    batch=2,
    kv_heads=2,
    group_sizes=(3,),
    head_dim=8,
    selected_tokens=150,
    context_tokens=400,
    block_size=16,
    scaling=True,
    scaling_tokens=600,
)


@pytest.mark.native
def test_both_series_are_measured() -> None:
    with OurKernel(2) as kernel:
        scaling = scaling_run.measure_scaling(
            CONFIG, kernel, lambda runs: interleave(runs, max_rounds=2, time_budget_s=60.0), seed=0
        )
    assert scaling.wrong == []
    assert [(p.selected_tokens, p.context_tokens) for p in scaling.by_selected_tokens] == [
        (256, 600),
        (512, 600),
        (600, 600),
    ]
    assert [(p.selected_tokens, p.context_tokens) for p in scaling.by_context_tokens] == [
        (150, 150),
        (150, 300),
        (150, 600),
    ]
    assert (scaling.dtype, scaling.group_size, scaling.threads) == ("fp32", 3, 2)
    for point in (*scaling.by_selected_tokens, *scaling.by_context_tokens):
        size = 2 * 2 * 2 * point.selected_tokens * 8 * 4
        assert point.kv_bandwidth_bytes_per_s == pytest.approx(size / point.median_s)
        assert point.runs == 2
    assert scaling.context_ratio is not None
    assert scaling.context_ratio >= 1


@pytest.mark.native
def test_a_wrong_answer_is_told_and_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> Timings:
        raise AssertionError("timed a wrong kernel")

    right = scaling_run.oracle
    monkeypatch.setattr(scaling_run, "oracle", lambda *a: right(*a) + 1e-3)
    with OurKernel(1) as kernel:
        scaling = scaling_run.measure_scaling(CONFIG, kernel, never, seed=0)
    assert len(scaling.wrong) == 6
    assert "256 of 600 tokens: relative error" in scaling.wrong[0]
    assert (scaling.by_selected_tokens, scaling.log_log_slope, scaling.context_ratio) == ([], None, None)


@pytest.mark.native
def test_an_interrupted_series_is_the_last() -> None:
    calls = 0

    def interrupted(runs: object) -> Timings:
        nonlocal calls
        calls += 1
        return Timings([{"0": 1.0, "1": 2.0}], interrupted=True)

    with OurKernel(1) as kernel:
        scaling = scaling_run.measure_scaling(CONFIG, kernel, interrupted, seed=0)
    assert (scaling.interrupted, calls, len(scaling.by_selected_tokens)) == (True, 1, 2)
    assert scaling.by_context_tokens == []


def test_repeated_random_numbers_still_tell_blocks_apart() -> None:
    with OurKernel(1) as kernel:
        pool = scaling_run._ScalingRun(CONFIG, kernel, torch.Generator().manual_seed(0)).keys
    blocks = pool.flatten(1)
    assert torch.unique(blocks, dim=0).shape == blocks.shape
