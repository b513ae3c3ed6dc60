"""Workers and their tensors when things end early: dropped jobs, dropped workers, exit, fork."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

from dtk_kernels._worker_threads import Handle, PendingWork
from dtk_kernels.attention import sparse_decode_attention
from dtk_kernels.workers import Workers
from tests.kernels.test_workers import long_problem, problem

pytestmark = pytest.mark.native
ROOT = Path(__file__).parents[2]


def test_tensors_live_as_long_as_their_work() -> None:
    workers = Workers(1)
    workers.submit_sparse_decode_attention(*long_problem(3_000))
    arguments = problem(1)
    expected = sparse_decode_attention(*arguments)
    job = workers.submit_sparse_decode_attention(*arguments)
    pool = weakref.ref(arguments[1])
    del arguments
    gc.collect()
    assert pool() is not None
    torch.testing.assert_close(job.wait(), expected)
    gc.collect()
    assert pool() is None  # nothing holds on to ended work


def test_a_dropped_job_still_runs_and_then_frees_its_tensors() -> None:
    workers = Workers(1)
    workers.submit_sparse_decode_attention(*long_problem(3_000))
    source, ids = torch.ones(3, 4), torch.zeros(1, dtype=torch.int32)
    target = torch.zeros(3, 4)
    workers.submit_copy_blocks([(source, ids, target, ids)])
    held = weakref.ref(source)
    del source
    gc.collect()
    assert held() is not None
    workers.close()
    assert target[0].tolist() == [1.0] * 4
    assert held() is None


def test_dropping_workers_finishes_their_work() -> None:
    workers = Workers(2)
    jobs = [workers.submit_sparse_decode_attention(*long_problem(1_000)) for _ in range(4)]
    del workers
    gc.collect()
    assert all(job.done() for job in jobs)


def test_a_submission_that_loses_against_closing_tells_so() -> None:
    pending = PendingWork()

    def refused() -> Handle:
        pending.clear()  # what closing does at the end, in another thread
        raise RuntimeError("these workers are closed")

    with pytest.raises(RuntimeError, match=r"^these workers are closed$"):
        pending.start(refused, ())


PRELUDE = """
import os, sys, time
import torch
from dtk_kernels.workers import Workers
from tests.kernels.test_workers import long_problem, problem
workers = Workers(2)
jobs = [workers.submit_sparse_decode_attention(*long_problem(1_000)) for _ in range(6)]
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


@pytest.mark.parametrize("ending", ["", "loop = [workers]; loop.append(loop)"])
def test_the_program_may_end_with_workers_at_work(ending: str) -> None:
    process = run(ending)
    assert (process.returncode, process.stderr) == (0, "")


def test_an_uncaught_error_ends_the_program_as_usual() -> None:
    process = run("1 / 0")
    assert process.returncode == 1
    assert process.stderr.rstrip().endswith("ZeroDivisionError: division by zero")


def test_ctrl_c_ends_the_waiting_but_not_the_work() -> None:
    process = run("""
import _thread, threading
job = workers.submit_sparse_decode_attention(*long_problem(50_000))
threading.Timer(0.02, _thread.interrupt_main).start()
try:
    job.wait()
except KeyboardInterrupt:
    print("interrupted", job.done())
print(job.wait()[0].shape)
""")
    assert process.stdout.splitlines() == ["interrupted False", "torch.Size([1, 4, 64])"]


def test_a_forked_child_is_told_and_can_make_its_own() -> None:
    process = run("""
child = os.fork()
if child == 0:
    for call in (lambda: workers.submit_sparse_decode_attention(*problem()), jobs[0].wait, jobs[0].done):
        try:
            call()
        except RuntimeError as error:
            print(error)
    workers.close()
    del workers, jobs
    with Workers(1) as own:
        own.submit_sparse_decode_attention(*problem()).wait()
    print("child ends", flush=True)
    sys.exit(7)
_, status = os.waitpid(child, 0)
for job in jobs:
    job.wait()
print("child gave", os.waitstatus_to_exitcode(status))
""")
    assert process.stdout.splitlines() == [
        "these workers belong to the process before the fork",
        "this job belongs to the process before the fork",
        "this job belongs to the process before the fork",
        "child ends",
        "child gave 7",
    ]
    assert process.returncode == 0


def test_ctrl_c_while_taking_part_leaves_no_task_behind() -> None:
    """Each task of a digest is a sequence of its own, so that nobody else looks where a waiter broke off."""
    process = run("""
import _thread, threading
keys = torch.randn(1, 1, 4096, 16).expand(50_000, 1, 4096, 16)
workers = Workers(1)
job = workers.submit_block_digest(keys, torch.full((50_000,), 4096, dtype=torch.int32))
try:
    threading.Timer(0.01, _thread.interrupt_main).start()
    job.wait()
except KeyboardInterrupt:
    print("interrupted", job.done())
print(torch.equal(job.wait(take_part=False)[0][-1], keys[0].amin(dim=1)))
""")
    assert process.stdout.splitlines() == ["interrupted False", "True"], process.stderr
