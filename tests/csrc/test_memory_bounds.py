"""Native kernels read nothing past the end of a tensor: here an unreadable page follows each."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import ctypes, mmap
import torch
from dtk_kernels.attention import block_digest, block_score, merge_partials, select_blocks
from dtk_kernels.attention import sparse_decode_attention
from dtk_kernels.kv import copy_blocks_, gather_blocks

libc = ctypes.CDLL(None, use_errno=True)
maps = []  # never unmapped: tensors point into them

def at_the_edge(tensor):
    size = -(-tensor.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    maps.append(memory)
    guard = ctypes.addressof(ctypes.c_char.from_buffer(memory, size))
    assert libc.mprotect(ctypes.c_void_p(guard), mmap.PAGESIZE, 0) == 0
    copy = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=size - tensor.nbytes)
    return copy.view(tensor.shape).copy_(tensor)

if {overrun}:
    edge = at_the_edge(torch.zeros(8))
    ctypes.c_char.from_address(edge.data_ptr() + edge.nbytes).value

for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for head_dim in (1, 3, 7, 8, 9, 12, 15, 31, 33, 66):
        query = at_the_edge(torch.randn(1, 5, head_dim).to(dtype))
        pool = at_the_edge(torch.randn(2, 1, 3, head_dim).to(dtype))
        table = at_the_edge(torch.tensor([[[0, 1]]], dtype=torch.int32))
        lengths = at_the_edge(torch.tensor([[[3, 3]]], dtype=torch.int32))
        sparse_decode_attention(query, pool, pool, table, lengths, implementation="native")
        digests = block_digest(pool, lengths[0, 0], implementation="native")
        low, high = map(at_the_edge, digests)
        block_score(query, low, high, table[0], implementation="native")
        select_blocks(
            at_the_edge(torch.randn(1, 2, head_dim)), 3, implementation="native",
            forced=at_the_edge(torch.ones(1, head_dim, dtype=torch.bool) & (torch.arange(head_dim) == 0)),
        )
        merge_partials(
            at_the_edge(torch.randn(2, 1, head_dim)), at_the_edge(torch.zeros(2, 1)), implementation="native"
        )
        gather_blocks(pool, table[0, 0], implementation="native")
        target = at_the_edge(torch.zeros_like(pool))
        copy_blocks_(pool, table[0, 0], target, table[0, 0], implementation="native")
        assert torch.equal(target, pool)
large = at_the_edge(torch.ones(33, 524_287, dtype=torch.int8))  # as much as goes past the cache
target = at_the_edge(torch.zeros_like(large))
ids = torch.arange(33, dtype=torch.int32)
copy_blocks_(large, ids, target, ids, implementation="native")
assert torch.equal(target, large)
print("unharmed")
"""


def run(*, overrun: bool) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.replace("{overrun}", str(overrun))
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


@pytest.mark.native
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_kernels_stay_inside_their_tensors() -> None:
    process = run(overrun=False)
    assert (process.returncode, process.stdout.strip()) == (0, "unharmed"), process.stderr


@pytest.mark.native
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_an_overrun_would_show() -> None:
    assert run(overrun=True).returncode < 0
