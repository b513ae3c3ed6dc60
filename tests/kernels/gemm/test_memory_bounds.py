"""The native products read and write nothing beside their arguments: each ends where its memory does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# Every tensor ends at, or begins behind, a page that must not be touched: a stray access kills the process.
SCRIPT = """
import ctypes, mmap
import torch
from dtk_kernels.gemm import packed_linear, scaled_matmul

libc = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
kept = []

def guarded(shape, dtype, at_end):
    count = torch.Size(shape).numel()
    num_bytes = count * dtype.itemsize
    pages = -(-num_bytes // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    buffer = (ctypes.c_char * len(memory)).from_buffer(memory)
    address = ctypes.addressof(buffer)
    for page in (0, pages + 1):
        assert libc.mprotect(ctypes.c_void_p(address + page * PAGE), PAGE, 0) == 0  # PROT_NONE
    offset = (pages + 1) * PAGE - num_bytes if at_end else PAGE
    kept.append((memory, buffer))
    flat = torch.frombuffer(memory, dtype=torch.uint8, count=num_bytes, offset=offset)
    return flat.view(dtype).reshape(shape)

calls = 0
for at_end in (True, False):
    for rows in (1, 3):
        for format, block_size, depth in (
            ("e2m1", 16, 16), ("e2m1", 16, 272), ("e2m1", 32, 32), ("e2m1", 32, 352), ("e2m1", 77, 77),
            ("int8", 16, 48), ("int8", 32, 288), ("int8", 37, 37), ("int8", 4096, 4096), ("int8", 1, 1),
        ):
            for outputs in (1, 6):
                packed = format == "e2m1"
                x = guarded((rows, depth), torch.float32, at_end).fill_(1)
                dtype = torch.uint8 if packed else torch.int8
                codes = guarded((outputs, (depth + 1) // 2 if packed else depth), dtype, at_end).fill_(1)
                scales = guarded((outputs, depth // block_size), torch.float32, at_end).fill_(1)
                exponents = guarded(scales.shape, torch.uint8, at_end).fill_(127).view(torch.float8_e8m0fnu)
                bias = guarded((outputs,), torch.float32, at_end).fill_(1)
                for factors in (scales, exponents):
                    result = packed_linear(
                        x, codes, factors, format, block_size=block_size, bias=bias, implementation="native"
                    )
                    value = 0.5 * ((depth + 1) // 2) if packed else depth
                    torch.testing.assert_close(result, torch.full((rows, outputs), 1.0 + value))
                    calls += 1
                result = scaled_matmul(
                    codes, scales, codes, scales, format, format, block_size=block_size,
                    implementation="native",
                )
                value = 0.25 * ((depth + 1) // 2) if packed else depth
                torch.testing.assert_close(result, torch.full((outputs, outputs), 1.0 * value))
                calls += 1
print(calls)
"""


@pytest.mark.native
@pytest.mark.skipif(sys.platform != "linux", reason="protects pages by Linux's mprotect")
def test_nothing_is_read_beside_the_arguments() -> None:
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT, env=dict(os.environ),
    )  # fmt: skip
    assert process.returncode == 0, (process.returncode, process.stderr[-2000:])
    assert int(process.stdout) == 240
