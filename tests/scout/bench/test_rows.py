"""A row worked out from times that are made up."""

import pytest

from dtk.hardware.measure import Probe
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.rows import Limits, Row, make_row
from dtk.scout.bench.timing import Timings

CONFIG = KernelBenchConfig(batch=1, kv_heads=1, head_dim=8, selected_tokens=64, context_tokens=64)
KV_BYTES = 2 * 64 * 8 * 4
LIMITS = Limits(
    read=[Probe("native_read", 1000.0, lambda: None), Probe("torch_sum", 1000.0, lambda: None)],
    multiply_add=[
        Probe("native_multiply_add", 600.0, lambda: None),
        Probe("torch_matmul", 600.0, lambda: None),
    ],
)
SECONDS = {
    "dtk": 10.0,
    "torch_bmm": 40.0,
    "torch_sdpa_packed": 20.0,
    "torch_gather_sdpa": 5.0,
    "native_read": 2.0,
    "torch_sum": 1.0,
    "native_multiply_add": 1.0,
    "torch_matmul": 2.0,
}
ERRORS = dict.fromkeys(["dtk", "torch_bmm", "torch_sdpa_packed", "torch_gather_sdpa"], 1e-7)


def row_of(
    *rounds: dict[str, float], group_size: int = 1, errors: dict[str, float] | None = None
) -> Row | None:
    return make_row(
        CONFIG,
        dtype="fp32",
        group_size=group_size,
        threads=2,
        instruction_set="avx2",
        limits=LIMITS,
        timings=Timings(list(rounds)),
        errors=ERRORS if errors is None else errors,
        other_busy_cores=0.25,
    )


def test_figures_follow_from_the_medians() -> None:
    row = row_of(SECONDS, SECONDS | {"dtk": 11.0}, SECONDS | {"dtk": 9.0})
    assert row is not None
    assert row.kv_bytes == KV_BYTES
    assert (row.read_bandwidth_bytes_per_s, row.read_limit.probe) == (1000.0, "torch_sum")
    assert (row.multiply_adds_per_s, row.multiply_add_limit.probe) == (600.0, "native_multiply_add")
    assert (row.roofline_bytes_per_s, row.bound) == (1000.0, "memory")
    assert row.kv_bandwidth_bytes_per_s == pytest.approx(KV_BYTES / 10)
    assert row.fraction_of_roofline == pytest.approx(KV_BYTES / 10 / 1000)
    assert row.fraction_by_round is not None
    assert row.fraction_by_round.median == pytest.approx(row.fraction_of_roofline)
    assert row.fraction_by_round.count == 3
    assert (row.other_busy_cores, row.basis) == (0.25, "measured")


def test_torch_is_judged_by_its_best_without_the_gathering_one() -> None:
    row = row_of(SECONDS)
    assert row is not None
    assert row.torch_best_name == "torch_sdpa_packed"
    assert row.torch_best_bytes_per_s == pytest.approx(KV_BYTES / 20)
    assert row.speedup_over_torch == pytest.approx(2.0)
    assert row.contenders["torch_gather_sdpa"].median_s == 5.0


def test_large_groups_are_bound_by_multiply_adds() -> None:
    row = row_of(SECONDS, group_size=16)
    assert row is not None
    assert (row.roofline_bytes_per_s, row.bound) == (600 * 4 / 16, "multiply-adds")


def test_peers_that_were_not_timed_are_null() -> None:
    row = row_of(SECONDS, errors={"dtk": 0.0})
    assert row is not None
    assert (row.torch_best_bytes_per_s, row.torch_best_name, row.speedup_over_torch) == (None, None, None)
    assert (row.llama_cpp_bytes_per_s, row.speedup_over_llama_cpp) == (None, None)


def test_llama_cpp_has_figures_of_its_own() -> None:
    row = row_of(SECONDS | {"llama_cpp": 30.0}, errors=ERRORS | {"llama_cpp": 0.0})
    assert row is not None
    assert row.llama_cpp_bytes_per_s == pytest.approx(KV_BYTES / 30)
    assert row.speedup_over_llama_cpp == pytest.approx(3.0)


@pytest.mark.parametrize("missing", ["dtk", "native_read", "torch_matmul"])
def test_there_is_no_row_without_ours_and_the_limits(missing: str) -> None:
    seconds = {name: value for name, value in SECONDS.items() if name != missing}
    assert row_of(seconds) is None
    # A round that Ctrl-C cut short does not hurt the others.
    assert row_of(SECONDS, seconds) is not None
