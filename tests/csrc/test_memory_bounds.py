"""Native kernels read nothing past what is listed: here an unreadable page follows each tensor and token."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtk_kernels import status

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.native, pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")]

PRELUDE = """
import ctypes, itertools, math, mmap
import torch
from dtk_kernels.attention import block_digest, block_score, merge_partials, select_blocks
from dtk_kernels.attention import quantized_decode_attention, sparse_decode_attention
from dtk_kernels.kv import copy_blocks_, gather_blocks
from dtk_kernels.quant import dequantize, fake_quantize, hadamard, pack, quantize, unpack

libc = ctypes.CDLL(None, use_errno=True)
maps = []  # never unmapped: tensors point into them

# A dense tensor of which only the first values can be touched: unreadable pages follow.
def before_the_edge(shape, dtype, num_readable):
    item = dtype.itemsize
    size = -(-num_readable * item // mmap.PAGESIZE) * mmap.PAGESIZE
    beyond = (math.prod(shape) - num_readable) * item // mmap.PAGESIZE * mmap.PAGESIZE + mmap.PAGESIZE
    memory = mmap.mmap(-1, size + beyond)
    maps.append(memory)
    guard = ctypes.addressof(ctypes.c_char.from_buffer(memory, size))
    assert libc.mprotect(ctypes.c_void_p(guard), beyond, 0) == 0
    flat = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=size - num_readable * item)
    return flat.view(shape)

def at_the_edge(tensor):
    return before_the_edge(tensor.shape, tensor.dtype, tensor.numel()).copy_(tensor)

def cut_short(tensor, num_readable):
    copy = before_the_edge(tensor.shape, tensor.dtype, num_readable)
    copy.flatten()[:num_readable].copy_(tensor.flatten()[:num_readable])
    return copy

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""

WHOLE_TENSORS = """
for dtype, head_dim in itertools.product(DTYPES, (1, 3, 7, 8, 9, 12, 15, 31, 33, 66)):
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
for dtype, columns in itertools.product(DTYPES, (1, 7, 16, 33, 130, 300)):
    x = at_the_edge(torch.randn(3, columns).to(dtype))
    random_bits = at_the_edge(torch.zeros(3, columns, dtype=torch.int32))
    for block in (None, (1, 16), (1, 128), (2, 1), (2, 5), (3, 64)):
        options = {"block": block, "implementation": "native"}
        codes, scales = quantize(x, "e2m1", **options)
        dequantize(at_the_edge(codes), at_the_edge(scales), "e2m1", **options)
        fake_quantize(x, "e2m1", rounding="stochastic", random_bits=random_bits, **options)
    packed = pack(at_the_edge(codes), implementation="native")
    assert torch.equal(unpack(at_the_edge(packed), columns, implementation="native"), codes)
    hadamard(x, at_the_edge(torch.ones(1)), size=1, implementation="native")
print("unharmed")
"""

# The last listed token of the last block ends at the unreadable page; the block before the list is NaN.
PARTIAL_BLOCKS = """
def int_tensor(*values):
    return torch.tensor(values, dtype=torch.int32)

for dtype, head_dim, block_size in itertools.product(DTYPES, (1, 5, 16, 20, 64, 100, 128), (5, 16, 70)):
    for length in {1, 2, 3, 4, block_size // 2, block_size - 1}:
        query = torch.randn(1, 3, head_dim)
        keys, values = torch.randn(2, 3, 1, block_size, head_dim).to(dtype)
        keys[0], values[0] = math.nan, math.nan
        tables = int_tensor(1, 2)[None, None], int_tensor(block_size, length)[None, None]
        expected = sparse_decode_attention(query, keys, values, *tables, implementation="reference")
        readable = (2 * block_size + length) * head_dim
        keys, values = cut_short(keys, readable), cut_short(values, readable)
        result = sparse_decode_attention(query, keys, values, *tables, implementation="native")
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        digests = block_digest(keys, int_tensor(0, block_size, length), implementation="native")
        assert not any(digest.isnan().any() for digest in digests)
print("unharmed")
"""

# The same of codes and their scales, of which the last listed token ends at an unreadable page each.
PARTIAL_BLOCKS_OF_CODES = """
def int_tensor(*values):
    return torch.tensor(values, dtype=torch.int32)

SHAPES = (  # channels and scales of a token
    (1, 1), (6, 3), (20, 1), (21, 1), (21, 3), (64, 1), (64, 4), (80, 5), (100, 2), (128, 8),
)
TOKENS = ((5, 1), (5, 4), (16, 3), (33, 32), (70, 17))
FORMATS = (("int8", "fp32"), ("e4m3", "bf16"), ("e2m1", "e8m0"), ("e2m1", "fp32"))
for (format, scale_format), (head_dim, num_scales), (block_size, length), heads in itertools.product(
    FORMATS, SHAPES, TOKENS, (1, 3)
):
    query = torch.randn(1, heads, head_dim)
    pools = []
    for pool in torch.randn(2, 2, 1, block_size, head_dim):
        block = (1, head_dim // num_scales)
        codes, scales = quantize(pool, format, block=block, scale_format=scale_format)
        pools.append((pack(codes) if format == "e2m1" else codes, scales))
    (keys, key_scales), (values, value_scales) = pools
    whole = keys, values, key_scales, value_scales
    tables = int_tensor(0, 1)[None, None], int_tensor(block_size, length)[None, None]
    expected = quantized_decode_attention(
        query, *whole, *tables, format=format, implementation="reference"
    )
    listed = block_size + length
    cut = [cut_short(pool.view(torch.uint8), listed * pool.shape[-1] * pool.dtype.itemsize).view(pool.dtype)
           for pool in whole]
    result = quantized_decode_attention(
        at_the_edge(query), *cut, *tables, format=format, implementation="native"
    )
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
print("unharmed")
"""

OVERRUN = """
edge = before_the_edge((8, 4), torch.float32, 31)
print("before", flush=True)
ctypes.c_char.from_address(edge.data_ptr() + 31 * 4).value
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + script],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env=os.environ | environment,
    )  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(WHOLE_TENSORS, id="whole tensors"),
        pytest.param(PARTIAL_BLOCKS, id="partial blocks"),
        pytest.param(PARTIAL_BLOCKS_OF_CODES, id="partial blocks of codes"),
    ],
)
@pytest.mark.parametrize("instruction_set", ["generic", "avx2", "avx512"])
def test_kernels_stay_inside_what_they_are_given(instruction_set: str, script: str) -> None:
    if instruction_set not in status.instruction_sets() + status.optional_instruction_sets():
        pytest.skip(f"no {instruction_set} in this build on this CPU")
    process = run(script, DTK_CPU_ISA=instruction_set)
    assert (process.returncode, process.stdout.strip()) == (0, "unharmed"), process.stderr


def test_an_overrun_would_show() -> None:
    process = run(OVERRUN)
    assert (process.returncode != 0, process.stdout.strip()) == (True, "before")
    assert "Traceback" not in process.stderr
