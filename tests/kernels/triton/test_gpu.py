"""What only a GPU can show: bfloat16 values, real sizes, and launches on the tensors' own device."""

from typing import get_args

import pytest
import torch

from dtk_kernels.attention.block_digest.reference import block_digest as reference_block_digest
from dtk_kernels.attention.block_digest.triton_kernel import block_digest
from dtk_kernels.attention.block_score import HeadReduction
from dtk_kernels.attention.block_score.reference import block_score as reference_block_score
from dtk_kernels.attention.block_score.triton_kernel import block_score
from dtk_kernels.attention.sparse_decode_attention.triton_kernel import sparse_decode_attention
from dtk_kernels.kv import copy_blocks_
from tests.kernels.triton import inputs
from tests.kernels.triton.attention_oracle import expected, make_problem

pytestmark = pytest.mark.gpu

# Products of bfloat16 are exact in fp32; two bfloat16 terms a softmax weight leave 2**-17 of it.
RTOL, ATOL = 1e-4, 1e-4


@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
@pytest.mark.parametrize("group_size", [1, 3, 8])
@pytest.mark.parametrize("query_dtype", [torch.bfloat16, torch.float32])
def test_attention(query_dtype: torch.dtype, group_size: int, head_dim: int) -> None:
    problem = make_problem(
        batch=4,
        num_kv_heads=8,
        group_size=group_size,
        head_dim=head_dim,
        block_size=32,
        num_pool_blocks=256,
        num_blocks=64,
        query_dtype=query_dtype,
        dtype=torch.bfloat16,
        layout="token-major",
    )
    with inputs.poisoned_memory():
        output, lse = sparse_decode_attention(*(tensor.cuda() for tensor in problem.tensors()))
    expected_output, expected_lse = expected(problem)
    torch.testing.assert_close(output.cpu().double(), expected_output, rtol=RTOL, atol=ATOL)
    torch.testing.assert_close(lse.cpu().double(), expected_lse, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("columns_per_split", [1, 7, 64])
def test_splits_do_not_change_the_result(columns_per_split: int) -> None:
    problem = make_problem(num_pool_blocks=128, num_blocks=64, head_dim=128, dtype=torch.bfloat16)
    tensors = [tensor.cuda() for tensor in problem.tensors()]
    result = sparse_decode_attention(*tensors, columns_per_split=columns_per_split)
    torch.testing.assert_close(result, sparse_decode_attention(*tensors), rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
def test_digest(head_dim: int) -> None:
    source = inputs.generator(head_dim)
    keys = inputs.randn((64, 8, 32, head_dim), source, torch.bfloat16).cuda()
    lengths = inputs.randint(0, 32, (64,), source).cuda()
    with inputs.poisoned_memory():
        result = block_digest(keys, lengths)
    assert all(map(torch.equal, result, reference_block_digest(keys, lengths)))


@pytest.mark.parametrize("head_reduction", get_args(HeadReduction))
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
def test_score(head_dim: int, head_reduction: HeadReduction) -> None:
    source = inputs.generator(head_dim)
    pair = inputs.randn((2, 300, 8, head_dim), source, torch.bfloat16).cuda()
    query = inputs.randn((4, 32, head_dim), source, torch.bfloat16).cuda()
    table = inputs.randint(-1, 299, (4, 1000), source).cuda()
    arguments = query, pair.amin(dim=0), pair.amax(dim=0), table
    with inputs.poisoned_memory():
        scores = block_score(*arguments, head_reduction=head_reduction)
    wanted = reference_block_score(*arguments, head_reduction=head_reduction)
    torch.testing.assert_close(scores, wanted, rtol=RTOL, atol=1e-2)


@pytest.mark.parametrize("devices", [("cpu", "cuda"), ("cuda", "cpu")])
def test_copy_between_devices(devices: tuple[str, str]) -> None:
    source = torch.arange(12.0, device=devices[0]).reshape(3, 4)
    target = torch.zeros(2, 4, device=devices[1])
    source_ids = torch.tensor([2, -1, 0], dtype=torch.int32, device=devices[0])
    target_ids = torch.tensor([1, 0, -1], dtype=torch.int32, device=devices[1])
    copy_blocks_(source, source_ids, target, target_ids)
    assert target.tolist() == [[0.0] * 4, [8.0, 9.0, 10.0, 11.0]]


def test_launches_on_the_device_of_the_tensors() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    problem = make_problem(dtype=torch.bfloat16)
    output, _ = sparse_decode_attention(*(tensor.to("cuda:1") for tensor in problem.tensors()))
    torch.testing.assert_close(output.cpu().double(), expected(problem)[0], rtol=RTOL, atol=ATOL)
