import pytest
import torch

from dtk_kernels import limits
from dtk_kernels.workers import Workers

pytestmark = pytest.mark.native


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("num_values", [1024, 5 * 1024, 3 * 2**20 + 1024])
def test_read_reads_every_value_once(num_threads: int, num_values: int) -> None:
    # Small whole numbers: fp32 sums of them are exact in any order.
    buffer = torch.randint(-8, 8, (num_values,), generator=torch.Generator().manual_seed(0)).float()
    with Workers(num_threads) as workers:
        assert limits.read(workers, buffer) == buffer.double().sum().item()


@pytest.mark.parametrize("position", [0, 1023, 1024, 2**20 - 1])
def test_read_sees_a_single_value_anywhere(position: int) -> None:
    buffer = torch.zeros(2**20)
    buffer[position] = 3.0
    with Workers(2) as workers:
        assert limits.read(workers, buffer) == 3.0


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("count", [1, 10**6, 10**7 + 1])
def test_multiply_add_counts_what_it_does(num_threads: int, count: int) -> None:
    with Workers(num_threads) as workers:
        done = limits.multiply_add(workers, count)
    # At least so many that the result shows that they were done, else about what was asked for.
    assert done == pytest.approx(count, rel=0.1) or count < done < 10**6


def test_the_instruction_set_is_one_of_those_built() -> None:
    assert limits.instruction_set() in {"generic", "avx2", "avx512"}


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (torch.zeros(1024, dtype=torch.float64), "fp32"),
        (torch.zeros(2, 1024), "vector"),
        (torch.zeros(2048)[::2], "contiguous"),
        (torch.zeros(1000), "multiple of 1024"),
        (torch.zeros(0), "multiple of 1024"),
    ],
)
def test_read_refuses_other_buffers(buffer: torch.Tensor, words: str) -> None:
    with Workers(1) as workers, pytest.raises(ValueError, match=words):
        limits.read(workers, buffer)


def test_multiply_add_refuses_a_count_below_one() -> None:
    with Workers(1) as workers, pytest.raises(ValueError, match="count must be at least 1"):
        limits.multiply_add(workers, 0)


def test_closed_workers_are_refused() -> None:
    workers = Workers(1)
    workers.close()
    with pytest.raises(RuntimeError, match="closed"):
        limits.read(workers, torch.zeros(1024))
    with pytest.raises(RuntimeError, match="closed"):
        limits.multiply_add(workers, 1)
