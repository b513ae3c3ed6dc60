"""Threads in groups of `threads_per_sequence`: who works on what, and that the results stay the same."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention import sparse_decode_attention
from dtk_kernels.workers import Workers
from tests.kernels.attention.cases import AttentionCase, attention_cases
from tests.kernels.test_workers import long_problem

pytestmark = pytest.mark.native


def cpu_seconds() -> dict[str, float]:
    """What each worker thread of this process has spent on a core, by thread id."""
    seconds = {}
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text() == "dtk-worker\n":
            seconds[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


def busy_threads(workers: Workers, batch: int) -> int:
    """How many threads had a real part in one long job."""
    query, keys, values, table, lengths = long_problem(10_000)
    query, table, lengths = (tensor.expand(batch, -1, -1) for tensor in (query, table, lengths))
    workers.submit_sparse_decode_attention(query, keys, values, table, lengths).wait()
    spent = list(cpu_seconds().values())
    return sum(seconds > 0.05 * sum(spent) for seconds in spent)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("threads_per_sequence", "batch", "expected"),
    [(1, 1, 1), (2, 1, 2), (None, 1, 4), (1, 3, 3), (2, 2, 4), (4, 3, 4)],
)
def test_a_sequence_gets_one_group_of_threads(
    threads_per_sequence: int | None, batch: int, expected: int
) -> None:
    with Workers(4, threads_per_sequence) as workers:
        # Threads claim their work: on a busy machine one may come too late for its share.
        seen = [busy_threads(workers, batch)]
        while seen[-1] < expected and len(seen) < 10:
            seen.append(busy_threads(workers, batch))
    assert max(seen) == expected


GROUPS = [(1, None), (1, 1), (2, None), (2, 1), (2, 2), (3, 1), (3, 3), (4, 2), (5, None), (5, 1)]


@settings(max_examples=60, deadline=None)
@given(case=attention_cases(), groups=st.sampled_from(GROUPS), repeats=st.integers(1, 300))
def test_results_do_not_depend_on_threads_and_groups(
    case: AttentionCase, groups: tuple[int, int | None], repeats: int
) -> None:
    query, keys, values, table, lengths = case.arguments()
    table, lengths = table.repeat(1, 1, repeats), lengths.repeat(1, 1, repeats)  # several chunks
    arguments = (query, keys, values, table, lengths)
    expected = sparse_decode_attention(*arguments, implementation="native")
    with Workers(*groups) as workers:
        jobs = [workers.submit_sparse_decode_attention(*arguments) for _ in range(3)]
        for job in jobs:
            torch.testing.assert_close(job.wait(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("threads_per_sequence", [3, 5, 8])
def test_groups_must_be_of_equal_size(threads_per_sequence: int) -> None:
    with pytest.raises(ValueError, match=r"^threads_per_sequence must divide num_threads \(4\)"):
        Workers(4, threads_per_sequence)


def test_a_group_needs_a_thread() -> None:
    with pytest.raises(ValueError, match=r"^threads_per_sequence must be at least 1, got 0$"):
        Workers(4, 0)
    with pytest.raises(TypeError, match=r"^threads_per_sequence must be an integer, got 1.0$"):
        Workers(4, 1.0)  # type: ignore[arg-type]
