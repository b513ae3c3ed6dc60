"""A thread that waits for a job takes part in it."""

import threading
import time
from itertools import pairwise

import pytest
import torch

from dtk_kernels.attention import sparse_decode_attention
from dtk_kernels.workers import Workers
from tests.kernels.test_workers import INT, long_problem, problem
from tests.kernels.test_workers_lifetime import run

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


def test_a_single_thread_waits_for_those_who_took_part_in_the_job_before() -> None:
    ids = torch.tensor([0, 1], dtype=INT)
    with Workers(1) as workers:
        for _ in range(100):
            first, second, third = (torch.full((2, 2**18), float(index)) for index in range(3))
            job = workers.submit_copy_blocks([(first, ids, second, ids)])
            last = workers.submit_copy_blocks([(second, ids, third, ids)])
            job.wait()
            last.wait(take_part=False)
            assert not third.any()


def test_interrupted_waiters_leave_nothing_undone() -> None:
    """Sequences of one task, of a few, and of many; each wait is interrupted again and again."""
    process = run("""
import signal
from tests.kernels.test_workers import INT

class Interrupt(Exception): pass
def interrupt(*_): raise Interrupt
signal.signal(signal.SIGALRM, interrupt)

def wait(job):
    count = 0
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.06)
            job.wait()
            signal.setitimer(signal.ITIMER_REAL, 0)
            return count
        except Interrupt:
            count += 1

pools = [torch.zeros(64, 2**20) for _ in range(2)]
ids = torch.arange(64, dtype=INT)
with Workers(1) as many, Workers(3) as more:
    interrupted = 0
    for workers in (many, more):
        for round in range(4):
            interrupted += wait(workers.submit_copy_blocks([(pools[0], ids, pools[1], ids)] * 1))
            query, keys, values, table, lengths = long_problem(20_000)
            arguments = query.expand(4, 4, 64), keys, values, table.expand(4, 1, -1), lengths.expand(4, 1, -1)
            interrupted += wait(workers.submit_sparse_decode_attention(*arguments))
        workers.submit_copy_blocks([]).wait()
        assert not workers._pending._entries
print(interrupted > 8)
""")
    assert process.stdout.split() == ["True"], process.stderr


def test_a_daemon_thread_may_wait_when_the_program_ends() -> None:
    process = run("""
import threading
job = workers.submit_sparse_decode_attention(*long_problem(30_000))
threading.Thread(target=job.wait, daemon=True).start()
time.sleep(0.1)
print("ends", flush=True)
""")
    assert (process.returncode, process.stdout) == (0, "ends\n"), process.stderr


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
