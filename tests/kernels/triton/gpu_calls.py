"""One small call of every operation on a GPU, with the tensors that go in and the one that comes out."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from dtk_kernels.attention import (
    block_digest,
    block_score,
    merge_partials,
    quantized_decode_attention,
    select_blocks,
    sparse_decode_attention,
)
from dtk_kernels.gemm import packed_linear, scaled_matmul
from dtk_kernels.kv import copy_blocks_, gather_blocks, scatter_blocks_
from dtk_kernels.quant import NvScales, dequantize, fake_quantize, hadamard, pack, quantize, unpack
from tests.kernels.triton import inputs
from tests.kernels.triton.attention_oracle import make_problem
from tests.kernels.triton.quantized_attention import make_quantized_problem

__all__ = ["OPERATIONS", "GpuCall", "gpu_call"]

OPERATIONS = (
    "block_digest",
    "block_score",
    "select_blocks",
    "sparse_decode_attention",
    "quantized_decode_attention",
    "merge_partials",
    "gather_blocks",
    "scatter_blocks_",
    "copy_blocks_",
    "packed_linear",
    "scaled_matmul",
    "quantize",
    "dequantize",
    "fake_quantize",
    "pack",
    "unpack",
    "hadamard",
)


@dataclass(frozen=True)
class GpuCall:
    """A call and its data.

    Attributes:
        run: makes the call and returns its results (for an operation in place, what it wrote).
        varied: an input of numbers or bytes; when it changes, so does the result.
    """

    run: Callable[[], tuple[torch.Tensor, ...]]
    varied: torch.Tensor


def gpu_call(operation: str) -> GpuCall:
    """Return a call of the public function, which finds the Triton kernel by the tensors' device."""
    source = inputs.generator(0)
    if operation == "sparse_decode_attention":
        # A batch this small is split, so that the merge runs, too.
        problem = make_problem(num_pool_blocks=70, num_blocks=64, block_size=32, head_dim=128, group_size=4)
        query, keys, values, table, lengths = (tensor.cuda() for tensor in problem.tensors())
        return GpuCall(lambda: sparse_decode_attention(query, keys, values, table, lengths), query)
    if operation == "quantized_decode_attention":
        quantized = make_quantized_problem(
            "e2m1", head_dim=128, num_pool_blocks=70, num_blocks=64, block_size=32, group_size=4
        )
        tensors = [tensor.cuda() for tensor in quantized.tensors()]
        return GpuCall(lambda: quantized_decode_attention(*tensors, format="e2m1"), tensors[0])
    if operation in ("packed_linear", "scaled_matmul"):
        codes = torch.randint(-127, 128, (200, 96), generator=source, dtype=torch.int8).cuda()
        scales = torch.rand((200, 3), generator=source).cuda()
        x = inputs.randn((5, 96), source, torch.float32).cuda()
        if operation == "packed_linear":
            return GpuCall(lambda: (packed_linear(x, codes, scales, "int8", block_size=32),), x)
        return GpuCall(
            lambda: (scaled_matmul(codes, scales, codes, scales, "int8", "int8", block_size=32),), scales
        )
    if operation in OPERATIONS[-6:]:
        return _quantiser_call(operation, inputs.randn((300, 512), source, torch.bfloat16).cuda())
    pool = inputs.randn((40, 8, 32, 128), source, torch.bfloat16).cuda()
    ids = torch.randperm(40, generator=source)[:9].int().cuda()
    if operation == "block_digest":
        lengths = inputs.randint(1, 32, (40,), source).cuda()
        return GpuCall(lambda: block_digest(pool, lengths), pool)
    if operation == "block_score":
        low, high = pool.amin(dim=2), pool.amax(dim=2)
        query = inputs.randn((3, 32, 128), source, torch.bfloat16).cuda()
        table = inputs.randint(-1, 39, (3, 100), source).cuda()
        return GpuCall(lambda: (block_score(query, low, high, table),), query)
    if operation == "select_blocks":
        scores = inputs.randn((3, 1, 2000), source, torch.float32).cuda()
        forced = torch.zeros(3, 2000, dtype=torch.bool, device="cuda")
        forced[:, 0] = True
        return GpuCall(lambda: (select_blocks(scores, 64, forced=forced),), scores)
    if operation == "merge_partials":
        outputs = inputs.randn((5, 4, 32, 128), source, torch.float32).cuda()
        lses = inputs.randn((5, 4, 32), source, torch.float32).cuda()
        return GpuCall(lambda: merge_partials(outputs, lses), outputs)
    if operation == "gather_blocks":
        return GpuCall(lambda: (gather_blocks(pool, ids),), pool)
    target = torch.zeros_like(pool)
    if operation == "scatter_blocks_":
        blocks = pool[:9].clone()
        return GpuCall(lambda: (scatter_blocks_(target, ids, blocks), target)[1:], blocks)
    places = torch.arange(9, dtype=torch.int32, device="cuda")
    return GpuCall(lambda: (copy_blocks_(pool, ids, target, places), target)[1:], pool)


def _quantiser_call(operation: str, x: torch.Tensor) -> GpuCall:
    if operation == "quantize":  # all of its kernels

        def run() -> tuple[torch.Tensor, ...]:
            codes, scales = quantize(x, "nvfp4")
            assert isinstance(scales, NvScales)
            return codes, scales.block.view(torch.uint8), scales.tensor

        return GpuCall(run, x)
    if operation == "fake_quantize":
        return GpuCall(lambda: (fake_quantize(x, "e4m3", block=(None, 1)),), x)
    if operation == "hadamard":
        signs = torch.ones(64, device="cuda")
        return GpuCall(lambda: (hadamard(x, signs, size=64),), x)
    codes, scales = quantize(x, "mxfp4")
    packed = pack(codes)
    if operation == "dequantize":
        return GpuCall(lambda: (dequantize(codes, scales, "mxfp4"),), codes)
    if operation == "pack":
        return GpuCall(lambda: (pack(codes),), codes)
    return GpuCall(lambda: (unpack(packed, 512),), packed)
