"""Pools whose blocks, heads or tokens lie more than 2**31 elements apart, and what kernels make of them."""

import math
import mmap

import pytest
import torch

from dtk_kernels.attention.block_digest.reference import block_digest as reference_block_digest
from dtk_kernels.attention.block_digest.triton_kernel import block_digest
from dtk_kernels.attention.block_score.reference import block_score as reference_block_score
from dtk_kernels.attention.block_score.triton_kernel import block_score
from dtk_kernels.attention.quantized_decode_attention.triton_kernel import quantized_decode_attention
from dtk_kernels.attention.sparse_decode_attention.triton_kernel import sparse_decode_attention
from dtk_kernels.kv.gather_blocks.triton_kernel import gather_blocks
from dtk_kernels.kv.scatter_blocks.triton_kernel import scatter_blocks_
from dtk_kernels.quant import dequantize, fake_quantize, hadamard, pack, quantize, unpack
from tests.kernels.triton import inputs
from tests.kernels.triton.attention_oracle import expected, make_problem
from tests.kernels.triton.quantized_attention import make_quantized_problem

__all__ = [
    "DISTANCES",
    "check_attention",
    "check_attention_over_codes",
    "check_digest_and_moves",
    "check_quantisers",
    "check_score",
    "far_apart",
]

FAR = 2**31 + 64
DISTANCES = [(0, FAR), (1, FAR), (2, FAR // 24)]
"""Which dim, and how far apart. Tokens are nearer; but the last ones of a block are far from its first."""

RTOL, ATOL = 1e-4, 1e-4


def far_apart(pool: torch.Tensor, dim: int, distance: int, device: torch.device) -> torch.Tensor:
    """Return a copy of a pool whose neighbours along one dim are so far apart; skip if it does not fit."""
    strides = list(torch.empty([*pool.shape[:dim], *pool.shape[dim + 1 :]], device="meta").stride())
    strides.insert(dim, distance)
    num_bytes = (math.prod(pool.shape) + (pool.shape[dim] - 1) * distance) * pool.element_size()
    if device.type == "cpu":
        # Memory of which the system provides only the pages that are touched.
        memory = torch.frombuffer(mmap.mmap(-1, num_bytes), dtype=pool.dtype)
    else:
        torch.cuda.empty_cache()
        if num_bytes > 0.9 * torch.cuda.mem_get_info()[0]:
            pytest.skip(f"needs {num_bytes / 2**30:.0f} GiB of free GPU memory")
        memory = torch.empty(num_bytes // pool.element_size(), dtype=pool.dtype, device=device)
    return memory.as_strided(pool.shape, strides).copy_(pool)


def check_attention(dtype: torch.dtype, dim: int, distance: int, device: torch.device) -> None:
    """Attend to both of two blocks, the second one first."""
    near = make_problem(
        num_kv_heads=2, block_size=32, head_dim=64, num_pool_blocks=2, num_blocks=2, dtype=dtype
    )
    near.block_table.copy_(torch.tensor([[[1, 0]]]))
    near.block_lengths.fill_(32)
    for seed, pool in enumerate((near.keys, near.values)):
        pool.copy_(inputs.randn(pool.shape, inputs.generator(seed), dtype))
    query, keys, values, table, lengths = (tensor.to(device) for tensor in near.tensors())
    wanted = expected(near)
    for pools in (
        (far_apart(near.keys, dim, distance, device), values),
        (keys, far_apart(near.values, dim, distance, device)),
    ):
        output, lse = sparse_decode_attention(query, *pools, table, lengths)
        torch.testing.assert_close(output.cpu().double(), wanted[0], rtol=RTOL, atol=ATOL)
        torch.testing.assert_close(lse.cpu().double(), wanted[1], rtol=RTOL, atol=ATOL)


def check_attention_over_codes(dim: int, device: torch.device) -> None:
    """Attend to both of two blocks, of which the codes or the scales are far apart, in turn."""
    near = make_quantized_problem("e2m1", block_size=4, num_scales=2, num_pool_blocks=2, num_blocks=2)
    near.plain.block_table.copy_(torch.tensor([[[1, 0]]]))
    near.plain.block_lengths.fill_(4)
    for scales in (near.key_scales, near.value_scales):
        scales.nan_to_num_(nan=0.75)
    tensors = [tensor.to(device) for tensor in near.tensors()]
    wanted = quantized_decode_attention(*tensors, format="e2m1")
    for index in (1, 2, 3, 4):
        far = list(tensors)
        far[index] = far_apart(tensors[index].cpu(), dim, FAR, device)
        assert all(map(torch.equal, quantized_decode_attention(*far, format="e2m1"), wanted))


def check_digest_and_moves(dtype: torch.dtype, dim: int, distance: int, device: torch.device) -> None:
    """Digest, gather and scatter two blocks."""
    near = inputs.randn((2, 2, 32, 64), inputs.generator(dim), dtype)
    far = far_apart(near, dim, distance, device)
    lengths = torch.tensor([32, 31], dtype=torch.int32)
    digests = block_digest(far, lengths.to(device))
    assert all(map(torch.equal, (digest.cpu() for digest in digests), reference_block_digest(near, lengths)))
    ids = torch.tensor([1, -1, 0], dtype=torch.int32, device=device)
    gathered = gather_blocks(far, ids)
    assert torch.equal(gathered[[2, 0]].cpu(), near)
    scatter_blocks_(far, ids, gathered + 1)
    assert torch.equal(far.cpu(), near + 1)


def check_score(dtype: torch.dtype, dim: int, device: torch.device) -> None:
    """Score two blocks by digests of which each in turn is far apart."""
    near = inputs.randn((2, 2, 64), inputs.generator(dim), dtype)
    query = inputs.randn((1, 4, 64), inputs.generator(2), dtype)
    table = torch.tensor([[1, 0, -1]], dtype=torch.int32)
    far, dense = far_apart(near, dim, FAR, device), near.to(device)
    wanted = reference_block_score(query, near, near, table)
    for low, high in ((far, dense), (dense, far)):
        scores = block_score(query.to(device), low, high, table.to(device))
        torch.testing.assert_close(scores.cpu(), wanted, rtol=RTOL, atol=1e-2)


def check_quantisers(dtype: torch.dtype, dim: int, device: torch.device) -> None:
    """Quantise, decode, pack and transform matrices, rows or columns that are far apart."""
    near = inputs.randn((2, 2, 2), inputs.generator(dim), dtype)
    far = far_apart(near, dim, FAR, device)
    for block in ((1, 2), (2, 1), None):
        codes, scales = quantize(far, "e4m3", block=block, implementation="triton")
        wanted, wanted_scales = quantize(near, "e4m3", block=block, implementation="reference")
        assert torch.equal(codes.cpu(), wanted)
        assert isinstance(scales, torch.Tensor)
        assert isinstance(wanted_scales, torch.Tensor)
        assert torch.equal(scales.cpu(), wanted_scales)
        fake = fake_quantize(far, "e4m3", block=block, implementation="triton")
        assert torch.equal(fake.cpu(), fake_quantize(near, "e4m3", block=block, implementation="reference"))
        values = dequantize(
            far_apart(wanted, dim, FAR, device), scales, "e4m3", block=block, implementation="triton"
        )
        assert torch.equal(values.cpu().to(dtype), fake.cpu())
    nibbles = torch.arange(8, dtype=torch.uint8).reshape(2, 2, 2)
    packed = pack(far_apart(nibbles, dim, FAR, device), implementation="triton")
    assert torch.equal(packed.cpu(), pack(nibbles, implementation="reference"))
    unpacked = unpack(far_apart(nibbles, dim, FAR, device), 4, implementation="triton")
    assert torch.equal(unpacked.cpu(), unpack(nibbles, 4, implementation="reference"))
    signs = torch.tensor([1.0, -1.0])
    turned = hadamard(far, signs.to(device), size=2, implementation="triton")
    assert torch.equal(turned.cpu(), hadamard(near, signs, size=2, implementation="reference"))
