"""Workers: results, order, errors, waiting. Both with the compiled threads and with the Python stand-in."""

import sys
import threading
from itertools import pairwise

import pytest
import torch

from dtk_kernels.attention import sparse_decode_attention
from dtk_kernels.kv import copy_blocks_
from dtk_kernels.workers import Job, Workers

INT = torch.int32
Arguments = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def problem(seed: int = 0, *, batch: int = 2, num_blocks: int = 4) -> Arguments:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(-1, 6, (batch, 1, num_blocks), generator=generator, dtype=INT)
    return (
        torch.randn((batch, 4, 16), generator=generator),
        torch.randn((6, 2, 8, 16), generator=generator),
        torch.randn((6, 2, 8, 16), generator=generator),
        table,
        torch.randint(0, 9, table.shape, generator=generator, dtype=INT),
    )


def long_problem(num_blocks: int) -> Arguments:
    """Much work on little memory: the same block again and again, 10 to 20 us each on one thread."""
    keys, values = torch.randn(2, 1, 2, 512, 64)
    table = torch.zeros((1, 1, num_blocks), dtype=INT)
    return torch.randn(1, 4, 64), keys, values, table, torch.full_like(table, 512)


def long_job(workers: Workers, kind: str) -> Job[tuple[torch.Tensor, torch.Tensor]]:
    return workers.submit_sparse_decode_attention(*long_problem(3_000 if kind == "native" else 40))


def test_results_are_those_of_the_direct_call(workers: Workers, kind: str) -> None:
    jobs = [workers.submit_sparse_decode_attention(*problem(seed), scale=0.3) for seed in range(40)]
    implementation = "native" if kind == "native" else "reference"
    for seed, job in enumerate(jobs):
        expected = sparse_decode_attention(*problem(seed), scale=0.3, implementation=implementation)
        torch.testing.assert_close(job.wait(), expected, rtol=0, atol=0)
        assert job.done()


@pytest.mark.native
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_results_do_not_depend_on_the_number_of_threads(num_threads: int) -> None:
    arguments = problem(batch=3)
    with Workers(num_threads) as workers:
        output, lse = workers.submit_sparse_decode_attention(*arguments).wait()
    expected = sparse_decode_attention(*arguments, implementation="native")
    assert torch.equal(output, expected[0])
    assert torch.equal(lse, expected[1])


def test_work_without_any_task_is_done(workers: Workers) -> None:
    output, lse = workers.submit_sparse_decode_attention(*problem(batch=0)).wait()
    assert (output.shape, lse.shape) == ((0, 4, 16), (0, 4))
    assert workers.submit_copy_blocks([]).wait() is None


def test_one_thread_works_in_the_order_of_submission(kind: str) -> None:
    ids = torch.tensor([0, 1], dtype=INT)
    pools = [torch.full((2, 2**16), float(index)) for index in range(8)]  # two tasks a copy
    with Workers(1) as workers:
        long_job(workers, kind)  # keeps the thread busy while the copies queue up
        for source, target in pairwise(pools):
            job = workers.submit_copy_blocks([(source, ids, target, ids)])
        job.wait()
    assert not any(pool.any() for pool in pools)  # the first pool's zeros went through all of them


def test_tables_may_change_after_submission(kind: str) -> None:
    with Workers(1) as workers:
        long_job(workers, kind)
        arguments = problem(3)
        expected = sparse_decode_attention(*arguments, implementation="reference")
        job = workers.submit_sparse_decode_attention(*arguments)
        arguments[3].fill_(10**6)
        arguments[4].fill_(-5)
        torch.testing.assert_close(job.wait(), expected)


def test_copies_of_a_job_move_blocks_like_copy_blocks(workers: Workers) -> None:
    generator = torch.Generator().manual_seed(0)
    sources = [torch.randn((9, 2, 300, 64), generator=generator), torch.arange(12).reshape(4, 3).short()]
    targets = [torch.zeros((9, 300, 2, 64)).transpose(1, 2), torch.zeros(5, 3).short()]
    ids = [torch.tensor([8, 0, -1, 3, 3], dtype=INT), torch.tensor([1, 2, 3], dtype=INT)]
    target_ids = [torch.tensor([0, 1, 2, -1, 7], dtype=INT), torch.tensor([4, -1, 0], dtype=INT)]
    expected = [target.clone() for target in targets]
    for copy in zip(sources, ids, expected, target_ids, strict=True):
        copy_blocks_(*copy, implementation="reference")
    job = workers.submit_copy_blocks(list(zip(sources, ids, targets, target_ids, strict=True)))
    assert job.wait() is None
    for target, wanted in zip(targets, expected, strict=True):
        assert torch.equal(target, wanted)


def test_wrong_ids_of_copies_show_at_submission_and_copy_nothing(workers: Workers) -> None:
    pool, target, ids = torch.ones(3, 2), torch.zeros(3, 2), torch.zeros(2, dtype=INT)
    with pytest.raises(ValueError, match=r"^target_ids holds 0 more than once"):
        workers.submit_copy_blocks([(pool, ids[:1], target, ids[:1]), (pool, ids, target, ids)])
    with pytest.raises(ValueError, match=r"^source_ids holds 3; ids are -1"):
        workers.submit_copy_blocks([(pool, ids[:1] + 3, target, ids[:1])])
    with pytest.raises(ValueError, match="must not share memory"):
        workers.submit_copy_blocks([(pool, ids[:1], pool[1:], ids[:1])])
    assert not target.any()


def test_wrong_tables_show_at_every_wait_and_harm_no_other_job(workers: Workers) -> None:
    query, keys, values, table, lengths = problem()
    job = workers.submit_sparse_decode_attention(query, keys, values, table + 6, lengths)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^block_table holds \d+; ids are -1 \(no block\) or below 6"):
            job.wait()
    assert job.done()
    workers.submit_sparse_decode_attention(query, keys, values, table, lengths).wait()


def test_wrong_shapes_show_at_submission(workers: Workers) -> None:
    query, keys, values, table, lengths = problem()
    with pytest.raises(ValueError, match=r"^query has shape|^keys has shape"):
        workers.submit_sparse_decode_attention(query[..., :8], keys, values, table, lengths)
    with pytest.raises(ValueError, match=r"^query must be a CPU tensor"):
        workers.submit_sparse_decode_attention(*(tensor.to("meta") for tensor in problem()))


def test_a_pool_needs_a_thread() -> None:
    with pytest.raises(ValueError, match=r"^num_threads must be at least 1, got 0$"):
        Workers(0)


def test_several_threads_may_wait_for_one_job(workers: Workers, kind: str) -> None:
    job = long_job(workers, kind)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    threads = [threading.Thread(target=lambda: seen.append(job.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(seen) == 3
    assert all(output is job.wait()[0] for output, _ in seen)


def test_several_threads_may_submit(workers: Workers) -> None:
    arguments = problem(7)
    expected = sparse_decode_attention(*arguments, implementation="reference")
    results: list[tuple[torch.Tensor, torch.Tensor]] = []

    def submit_and_wait() -> None:
        jobs = [workers.submit_sparse_decode_attention(*arguments) for _ in range(50)]
        results.extend(job.wait() for job in reversed(jobs))

    threads = [threading.Thread(target=submit_and_wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(results) == 200
    for result in results:
        torch.testing.assert_close(result, expected)


def test_closing_finishes_what_was_submitted(kind: str) -> None:
    workers = Workers(2)
    jobs = [long_job(workers, kind)]
    jobs += [workers.submit_sparse_decode_attention(*problem()) for _ in range(20)]
    closers = [threading.Thread(target=workers.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(timeout=60)
    assert all(job.done() for job in jobs)
    workers.close()
    with pytest.raises(RuntimeError, match=r"^these workers are closed$"):
        workers.submit_sparse_decode_attention(*problem())
    torch.testing.assert_close(jobs[-1].wait(), sparse_decode_attention(*problem()))


@pytest.mark.native
def test_python_runs_while_workers_work_and_a_thread_waits() -> None:
    """The other thread gets the interpreter lock from this one only where this one lets go of it.

    It may be too late for one job, but not for a thousand. If `wait` held the lock, it would be for all: what
    else lets go of it (making and freeing tensors) is kept out of the measured line.
    """
    steps, stop = [0], threading.Event()
    arguments = long_problem(200)

    def step() -> None:
        while not stop.wait(1e-4):
            steps[0] += 1

    thread = threading.Thread(target=step)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    thread.start()
    try:
        with Workers(1) as workers:
            for _ in range(1000):
                job = workers.submit_sparse_decode_attention(*arguments)
                before = steps[0]
                job.wait()
                if steps[0] > before:
                    break
            assert steps[0] > before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join(timeout=60)


@pytest.mark.native
def test_of_several_errors_the_first_in_order_shows() -> None:
    query, keys, values, table, lengths = problem(batch=3, num_blocks=400)  # seven chunks a list
    table[0, 0, 399], table[1, 0, 0], table[2, 0, 200] = 77, 88, 99
    with Workers(3) as workers:
        for _ in range(200):
            job = workers.submit_sparse_decode_attention(query, keys, values, table, lengths)
            with pytest.raises(ValueError, match=r"^block_table holds 77"):
                job.wait()
