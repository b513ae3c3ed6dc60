"""What only a GPU can show: bfloat16 values, tensor cores, real sizes, the tensors' own device."""

from typing import get_args

import pytest
import torch

from dtk_kernels.attention.block_digest.reference import block_digest as reference_block_digest
from dtk_kernels.attention.block_digest.triton_kernel import block_digest
from dtk_kernels.attention.block_score import HeadReduction
from dtk_kernels.attention.block_score.reference import block_score as reference_block_score
from dtk_kernels.attention.block_score.triton_kernel import block_score
from dtk_kernels.attention.merge_partials.reference import merge_partials as reference_merge_partials
from dtk_kernels.attention.merge_partials.triton_kernel import merge_partials
from dtk_kernels.attention.quantized_decode_attention import CODE_DTYPES
from dtk_kernels.attention.quantized_decode_attention.triton_kernel import quantized_decode_attention
from dtk_kernels.attention.select_blocks.reference import select_blocks as reference_select_blocks
from dtk_kernels.attention.select_blocks.triton_kernel import select_blocks
from dtk_kernels.attention.sparse_decode_attention.triton_kernel import sparse_decode_attention
from dtk_kernels.kv import copy_blocks_
from tests.kernels.triton import inputs
from tests.kernels.triton.attention_oracle import expected, make_problem
from tests.kernels.triton.quantized_attention import make_quantized_problem, quantized_expected

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


# On a GPU these go through tensor cores: fp32 as three products of TF32 terms, fp16 as it is.
@pytest.mark.parametrize("block_size", [1, 16, 32, 64, 150])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_attention_in_every_dtype_and_block_size(dtype: torch.dtype, block_size: int) -> None:
    problem = make_problem(
        batch=2,
        num_kv_heads=8,
        group_size=4,
        head_dim=128,
        block_size=block_size,
        num_pool_blocks=99,
        num_blocks=70,
        num_tables=8,
        dtype=dtype,
    )
    output, lse = sparse_decode_attention(*(tensor.cuda() for tensor in problem.tensors()))
    expected_output, expected_lse = expected(problem)
    tolerance = 3e-5 if dtype == torch.float32 else RTOL
    torch.testing.assert_close(output.cpu().double(), expected_output, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.cpu().double(), expected_lse, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("group_size", [17, 32, 65, 128])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_many_query_heads_for_one_kv_head(dtype: torch.dtype, group_size: int) -> None:
    problem = make_problem(
        num_kv_heads=1, group_size=group_size, head_dim=128, block_size=32, num_blocks=20, dtype=dtype
    )
    output, lse = sparse_decode_attention(*(tensor.cuda() for tensor in problem.tensors()))
    expected_output, expected_lse = expected(problem)
    torch.testing.assert_close(output.cpu().double(), expected_output, rtol=RTOL, atol=ATOL)
    torch.testing.assert_close(lse.cpu().double(), expected_lse, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_scores_stay_finite(dtype: torch.dtype) -> None:
    problem = make_problem(head_dim=128, block_size=32, num_blocks=8, dtype=dtype)
    problem.keys.mul_(100.0)
    output, lse = sparse_decode_attention(*(tensor.cuda() for tensor in problem.tensors()))
    expected_output, expected_lse = expected(problem)
    torch.testing.assert_close(output.cpu().double(), expected_output, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(lse.cpu().double(), expected_lse, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("group_size", [1, 4, 16])
@pytest.mark.parametrize("query_dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("num_scales", [1, 4])
@pytest.mark.parametrize("format", CODE_DTYPES)
def test_attention_over_codes(
    format: str, num_scales: int, query_dtype: torch.dtype, group_size: int, head_dim: int
) -> None:
    problem = make_quantized_problem(
        format,
        num_scales=num_scales,
        scale_dtype=torch.float8_e8m0fnu if num_scales > 1 else torch.bfloat16,
        query_dtype=query_dtype,
        head_dim=head_dim,
        group_size=group_size,
        batch=2,
        num_kv_heads=4,
        num_pool_blocks=99,
        num_blocks=40,
        block_size=32,
        layout="token-major",
    )
    with inputs.poisoned_memory():
        output, lse = quantized_decode_attention(
            *problem.on(torch.device("cuda")), format=format, scale=problem.plain.scale
        )
    wanted = quantized_expected(problem)
    size = float(problem.plain.values.abs().max())
    torch.testing.assert_close(output.cpu().double(), wanted[0], rtol=RTOL, atol=ATOL * size)
    torch.testing.assert_close(lse.cpu().double(), wanted[1], rtol=RTOL, atol=ATOL)


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


@pytest.mark.parametrize("num_columns", [63, 2000, 8192, 32768])
def test_selection(num_columns: int) -> None:
    scores = inputs.randn((4, 2, num_columns), inputs.generator(num_columns), torch.float32)
    scores = scores.round(decimals=2)  # many ties
    scores[:, :, ::5] = float("-inf")
    forced = torch.zeros(4, num_columns, dtype=torch.bool)
    forced[:, [0, -1]] = True
    for count in (2, 64, num_columns):
        selected = select_blocks(scores.cuda(), count, forced=forced.cuda())
        assert torch.equal(selected.cpu(), reference_select_blocks(scores, count, forced=forced))


@pytest.mark.parametrize("num_partials", [1, 2, 33, 100])
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
def test_merge(num_partials: int, head_dim: int) -> None:
    source = inputs.generator(head_dim)
    outputs = inputs.randn((num_partials, 3, 32, head_dim), source, torch.float32)
    lses = inputs.randn(outputs.shape[:-1], source, torch.float32) * 20
    lses[:, 0, 0] = float("-inf")
    outputs[:, 0, 0] = float("nan")
    result = merge_partials(outputs.cuda(), lses.cuda())
    wanted = reference_merge_partials(outputs.double(), lses.double())
    torch.testing.assert_close([r.cpu().double() for r in result], list(wanted), rtol=RTOL, atol=ATOL)


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
