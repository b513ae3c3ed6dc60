"""What workers take and give back: threads and memory over many jobs, and none of torch's own threads."""

import gc
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from dtk_kernels.workers import Workers
from tests.kernels.test_workers import INT, Arguments

pytestmark = pytest.mark.native
ROOT = Path(__file__).parents[2]
MIB = 2**20


def two_chunks() -> Arguments:
    """A job with 8 KiB of tables and 8 KiB of partial results, which are its own."""
    table = torch.zeros((1, 1, 1024), dtype=INT)
    query, pool = torch.randn(1, 16, 32), torch.randn(1, 2, 1, 32)
    return query, pool, pool, table, torch.ones_like(table)


def test_ten_thousand_jobs_leave_no_thread_and_no_memory() -> None:
    """Half are waited for, half are dropped, some fail. Any leak of 1 KiB a job would show."""
    process = psutil.Process()
    arguments = two_chunks()
    wrong = arguments[3] + 5
    before_threads = process.num_threads()
    with Workers(2) as workers:

        def run(count: int) -> None:
            for index in range(count):
                job = workers.submit_sparse_decode_attention(*arguments)
                workers.submit_gather_blocks(arguments[1], arguments[3][0, 0, :64])  # dropped at once
                if index % 100 == 0:
                    bad = workers.submit_sparse_decode_attention(*arguments[:3], wrong, arguments[4])
                    with pytest.raises(ValueError, match="block_table holds 5"):
                        bad.wait()
                job.wait()

        run(500)
        gc.collect()
        objects, memory = len(gc.get_objects()), process.memory_info().rss
        threads = process.num_threads()
        run(5_000)
        gc.collect()
        assert process.num_threads() == threads
        assert process.memory_info().rss - memory < 10 * MIB
        assert len(gc.get_objects()) - objects < 1_000
    assert process.num_threads() == before_threads


SCRIPT = """
import threading
import psutil
import torch
from dtk_kernels.workers import Workers

def num_threads():
    return psutil.Process().num_threads()

torch.set_num_threads(4)
alone = num_threads()
with Workers(3) as workers:
    assert num_threads() == alone + 3
    keys = torch.randn(64, 8, 32, 128)
    ids = torch.arange(64, dtype=torch.int32)
    lengths = torch.full((64,), 32, dtype=torch.int32)
    query, table = torch.randn(4, 32, 128), ids.expand(4, -1)
    low, high = workers.submit_block_digest(keys, lengths).wait()
    scores = workers.submit_block_score(query, low, high, table).wait()
    chosen = workers.submit_select_blocks(scores, 32).wait()
    workers.submit_sparse_decode_attention(query, keys, keys, chosen, torch.full_like(chosen, 32)).wait()
    blocks = workers.submit_gather_blocks(keys, ids).wait()
    workers.submit_scatter_blocks(keys, ids, blocks).wait()
    workers.submit_copy_blocks([(blocks, ids, keys, ids)]).wait()
    assert num_threads() == alone + 3, "torch started threads"
    assert torch.get_num_threads() == 4
assert num_threads() == alone
torch.ones(2**20).exp().sum()
assert num_threads() > alone, "torch's threads would not have shown"
"""


def test_worker_code_starts_no_torch_threads_and_leaves_their_number_alone() -> None:
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )
    assert process.returncode == 0, process.stderr
