"""A thread that waits for a job takes part in it."""

import threading
import time
from itertools import pairwise

import pytest
import torch

from dtk_kernels.attention import sparse_decode_attention
from dtk_kernels.workers import Workers
from tests.kernels.test_workers import INT, long_problem, problem

pytestmark = pytest.mark.native


def cpu_time_of_waiting(workers: Workers, *, take_part: bool) -> float:
    """Return the CPU seconds of this thread while it waits for half a second of work."""
    job = workers.submit_sparse_decode_attention(*long_problem(20_000))
    before = time.thread_time()
    job.wait(take_part=take_part)
    return time.thread_time() - before


def test_waiting_works_unless_told_otherwise() -> None:
    with Workers(1) as workers:
        assert cpu_time_of_waiting(workers, take_part=False) < 0.01
        assert cpu_time_of_waiting(workers, take_part=True) > 0.02


def test_groups_of_threads_are_not_helped() -> None:
    with Workers(2, threads_per_sequence=1) as workers:
        assert cpu_time_of_waiting(workers, take_part=True) < 0.01


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_results_do_not_depend_on_who_took_part(num_threads: int) -> None:
    arguments = problem(7, batch=3, num_blocks=300)
    expected = sparse_decode_attention(*arguments, implementation="native")
    with Workers(num_threads) as workers:
        for _ in range(50):
            job = workers.submit_sparse_decode_attention(*arguments)
            waiters = [threading.Thread(target=job.wait) for _ in range(3)]
            for waiter in waiters:
                waiter.start()
            assert all(map(torch.equal, job.wait(), expected))
            for waiter in waiters:
                waiter.join()


def test_an_error_of_a_task_that_the_waiter_ran_reaches_it() -> None:
    query, keys, values, table, lengths = problem()
    table[-1, -1, -1] = 1000
    with Workers(1) as workers:
        for _ in range(50):
            with pytest.raises(ValueError, match="block_table holds 1000"):
                workers.submit_sparse_decode_attention(query, keys, values, table, lengths).wait()


def test_nobody_takes_part_before_earlier_jobs_are_done() -> None:
    ids = torch.tensor([0, 1], dtype=INT)
    with Workers(1) as workers:
        for _ in range(20):
            pools = [torch.full((2, 2**16), float(index)) for index in range(8)]  # two tasks a copy
            jobs = [
                workers.submit_copy_blocks([(source, ids, target, ids)]) for source, target in pairwise(pools)
            ]
            for job in reversed(jobs):
                job.wait()
            assert not any(pool.any() for pool in pools)  # the first pool's zeros went through all of them


def test_closing_waits_for_those_who_take_part() -> None:
    workers = Workers(1)
    job = workers.submit_sparse_decode_attention(*long_problem(5_000))
    results: list[tuple[torch.Tensor, torch.Tensor]] = []
    waiter = threading.Thread(target=lambda: results.append(job.wait()))
    waiter.start()
    workers.close()
    assert job.done()
    waiter.join()
    assert results[0][0].isfinite().all()
