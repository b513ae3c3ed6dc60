"""Attention over quantised K/V against dense attention in double precision; what no list names is NaN."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention import quantized_decode_attention as public
from dtk_kernels.attention.quantized_decode_attention import CODE_DTYPES
from dtk_kernels.attention.quantized_decode_attention.triton_kernel import quantized_decode_attention
from dtk_kernels.formats import FORMATS
from dtk_kernels.quant import pack
from tests.kernels.triton import inputs
from tests.kernels.triton.quantized_attention import (
    QuantizedProblem,
    make_quantized_problem,
    quantized_expected,
)

pytestmark = pytest.mark.interp

FP32, BF16, E8M0 = torch.float32, torch.bfloat16, torch.float8_e8m0fnu
# Codes are exact in fp16; query and weights keep two terms of it, or three of TF32.
RTOL, ATOL = 2e-5, 2e-5

formats = st.sampled_from(sorted(CODE_DTYPES))


def check(problem: QuantizedProblem, device: torch.device, columns_per_split: int | None = None) -> None:
    with inputs.poisoned_memory():
        result = quantized_decode_attention(
            *problem.on(device),
            format=problem.format,
            scale=problem.plain.scale,
            columns_per_split=columns_per_split,
        )
    assert_right(result, problem)


def assert_right(result: tuple[torch.Tensor, torch.Tensor], problem: QuantizedProblem) -> None:
    """Compare with double precision: the output by the size of the values, which E4M3 makes large."""
    output, lse = (each.cpu() for each in result)
    wanted_output, wanted_lse = quantized_expected(problem)
    assert output.dtype == lse.dtype == torch.float32
    size = float(problem.plain.values.abs().max()) if problem.plain.values.numel() else 1.0
    torch.testing.assert_close(output.double(), wanted_output, rtol=RTOL, atol=ATOL * size)
    torch.testing.assert_close(lse.double(), wanted_lse, rtol=RTOL, atol=ATOL)


@settings(max_examples=30)
@given(
    format=formats,
    scale_dtype=st.sampled_from([FP32, BF16, E8M0]),
    scale_channels=st.integers(1, 40),
    num_scales=st.integers(1, 6),
    query_dtype=inputs.dtypes,
    layout=inputs.layouts,
    batch=st.integers(1, 3),
    num_kv_heads=st.integers(1, 3),
    group_size=st.integers(1, 16),
    block_size=inputs.block_sizes,
    num_pool_blocks=st.integers(1, 6),
    num_blocks=st.integers(0, 12),
    table_for_each_head=st.booleans(),
    columns_per_split=st.sampled_from((None, 1, 2, 5)),
    seed=inputs.seeds,
)
def test_equals_attention_over_the_values(
    device: torch.device,
    format: str,
    scale_dtype: torch.dtype,
    scale_channels: int,
    num_scales: int,
    query_dtype: torch.dtype,
    layout: str,
    num_kv_heads: int,
    table_for_each_head: bool,
    columns_per_split: int | None,
    **sizes: int,
) -> None:
    problem = make_quantized_problem(
        format,
        scale_dtype=scale_dtype,
        num_scales=num_scales,
        head_dim=scale_channels * num_scales,
        query_dtype=query_dtype,
        layout=layout,
        num_kv_heads=num_kv_heads,
        num_tables=num_kv_heads if table_for_each_head else 1,
        **sizes,
    )
    check(problem, device, columns_per_split)


@pytest.mark.parametrize("format", CODE_DTYPES)
@pytest.mark.parametrize("group_size", [1, 3, 8, 16, 33])
@pytest.mark.parametrize(
    ("head_dim", "num_scales"), [(64, 1), (80, 5), (128, 1), (128, 4), (256, 1), (256, 8)]
)
def test_usual_head_sizes(
    device: torch.device, format: str, group_size: int, head_dim: int, num_scales: int
) -> None:
    problem = make_quantized_problem(
        format,
        head_dim=head_dim,
        num_scales=num_scales,
        group_size=group_size,
        query_dtype=torch.float16 if group_size % 2 else torch.float32,
        scale_dtype=E8M0 if num_scales > 1 else FP32,
        num_kv_heads=1,
        num_blocks=4,
        block_size=32,
    )
    check(problem, device, columns_per_split=3)


# A block in three tiles, a block and a half a tile, many blocks a tile: looked up one by one, or by a vector.
@pytest.mark.parametrize(("block_size", "num_blocks"), [(150, 3), (40, 5), (16, 9), (3, 30), (1, 150)])
@pytest.mark.parametrize("num_scales", [1, 2])
@pytest.mark.parametrize("format", CODE_DTYPES)
def test_blocks_of_every_size_against_tiles(
    device: torch.device, format: str, num_scales: int, block_size: int, num_blocks: int
) -> None:
    problem = make_quantized_problem(
        format, num_scales=num_scales, num_kv_heads=1, block_size=block_size, num_blocks=num_blocks
    )
    check(problem, device)


def of_single_tokens(
    codes: torch.Tensor, scales: torch.Tensor, format: str, device: torch.device
) -> torch.Tensor:
    """Return the output where each sequence attends to one token, with these codes as its value."""
    count = len(codes)
    stored = pack(codes) if format == "e2m1" else codes.view(CODE_DTYPES[format])
    stored, scales = stored[:, None, None], scales[:, None, None]
    table = torch.arange(count, dtype=torch.int32)[:, None, None]
    ones = torch.ones_like(scales.float()).to(scales.dtype)
    arguments = torch.zeros(count, 1, codes.shape[1]), torch.zeros_like(stored), stored, ones, scales, table
    output, _ = quantized_decode_attention(
        *(tensor.to(device) for tensor in (*arguments, torch.ones_like(table))), format=format
    )
    return output[:, 0].cpu()


@pytest.mark.parametrize("format", CODE_DTYPES)
@pytest.mark.parametrize("num_scales", [1, 2])
def test_every_code_is_decoded(device: torch.device, format: str, num_scales: int) -> None:
    values = torch.tensor(FORMATS[format].values)
    codes = torch.arange(len(values), dtype=torch.uint8)
    order = torch.cat([codes, codes.roll(1)])  # each once as an even channel, once as an odd one
    channels = min(len(values), 64)
    output = of_single_tokens(
        order.reshape(-1, channels), torch.full((len(order) // channels, num_scales), 0.5), format, device
    )
    torch.testing.assert_close(output.flatten(), values[order.long()] * 0.5, rtol=0, atol=0, equal_nan=True)


# The products of NaN, on purpose.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("dtype", [BF16, E8M0])
def test_every_scale_is_decoded(device: torch.device, dtype: torch.dtype) -> None:
    if dtype == E8M0:
        scales = torch.arange(256, dtype=torch.uint8).view(dtype)
    else:
        scales = torch.arange(0, 2**15, 128).to(torch.int16).view(dtype)  # those without a mantissa
        scales[-1], scales[:127] = float("nan"), (1 + torch.arange(127) / 128).to(dtype)
    scales = scales.reshape(-1, 64)
    codes = torch.ones(scales.shape, dtype=torch.uint8)
    output = of_single_tokens(codes, scales, "int8", device)
    torch.testing.assert_close(output, scales.float(), rtol=0, atol=0, equal_nan=True)
    few = scales.view(torch.uint8 if dtype == E8M0 else torch.int16).flatten()[::17].view(dtype)[:, None]
    output = of_single_tokens(codes[:1, :16].expand(len(few), -1).contiguous(), few, "int8", device)
    wanted = few.float().expand(-1, 16)
    torch.testing.assert_close(output, wanted, rtol=0, atol=2.0**-126, equal_nan=True)


@pytest.mark.parametrize("format", CODE_DTYPES)
@pytest.mark.parametrize("num_scales", [1, 4])
def test_a_nan_scale_shows_where_its_block_is(device: torch.device, format: str, num_scales: int) -> None:
    problem = make_quantized_problem(
        format, num_scales=num_scales, num_kv_heads=2, group_size=2, num_blocks=3
    )
    table, lengths = problem.plain.block_table, problem.plain.block_lengths
    table[:], lengths[:] = torch.tensor([1, -1, 2], dtype=torch.int32), 5
    for scales in (problem.key_scales, problem.value_scales):
        scales.fill_(float("nan"))
        scales[1:3, :, :5] = 0.5
    tensors = problem.on(device)
    clean = quantized_decode_attention(*tensors, format=format)
    assert all(each.isfinite().all() for each in clean)
    tensors[4][2, 0, 4, -1] = float("nan")  # the last block of a value
    output, lse = quantized_decode_attention(*tensors, format=format)
    first = 64 - 64 // num_scales
    assert output[:, :2, first:].isnan().all()
    assert torch.equal(output[:, :2, :first], clean[0][:, :2, :first])
    assert torch.equal(output[:, 2:], clean[0][:, 2:])
    assert torch.equal(lse, clean[1])
    tensors[3][1, 1, 0, 0] = float("nan")  # the first block of a key of the other head
    output, lse = quantized_decode_attention(*tensors, format=format)
    assert output[:, 2:].isnan().all()
    assert lse[:, 2:].isnan().all()
    assert torch.equal(lse[:, :2], clean[1][:, :2])


@pytest.mark.parametrize("num_scales", [1, 2])
@pytest.mark.parametrize("format", CODE_DTYPES)
def test_magnitudes_far_from_one(device: torch.device, format: str, num_scales: int) -> None:
    """Queries and key scales that make up for one another, value scales of every size in one tile."""
    problem = make_quantized_problem(format, num_scales=num_scales, group_size=4, num_blocks=4, block_size=16)
    plain = problem.plain
    factors = torch.tensor([1e-30, 1e-12, 1.0, 1e3])
    plain.query.copy_(plain.query.reshape(-1, 4, 64).mul(factors[:, None] * 1e6).reshape(plain.query.shape))
    problem.key_scales.mul_(1e-9)
    plain.keys.mul_(1e-9)
    sizes = 10.0 ** inputs.randint(-15, 15, plain.values.shape[:3], inputs.generator(5)).double()[..., None]
    problem.value_scales.copy_(problem.value_scales.double() * sizes)
    plain.values.copy_(plain.values * sizes)
    check(problem, device)


def test_16_bit_queries_far_below_their_largest_channel(device: torch.device) -> None:
    problem = make_quantized_problem("int8", query_dtype=torch.float16, num_blocks=5, block_size=16)
    problem.plain.query[..., ::3] *= 2.0**-10
    problem.plain.query[..., 5] = 60000.0
    problem.keys[..., 5] = 0  # the rest of the scores must not suffer
    problem.plain.keys[..., 5] = 0.0
    check(problem, device)


def test_empty_selections_among_others(device: torch.device) -> None:
    problem = make_quantized_problem("e2m1", batch=3, num_blocks=4)
    problem.plain.block_table[1] = -1
    problem.plain.block_lengths[2] = 0
    check(problem, device, columns_per_split=1)
    output, lse = quantized_decode_attention(*problem.on(device), format="e2m1")
    assert torch.equal(output[1:].cpu(), torch.zeros(output[1:].shape))
    assert torch.equal(lse[1:].cpu(), torch.full(lse[1:].shape, float("-inf")))


@pytest.mark.parametrize(("block_size", "num_columns"), [(0, 3), (4, 0)])
def test_nothing_to_attend_to(device: torch.device, block_size: int, num_columns: int) -> None:
    codes = torch.empty(2, 1, block_size, 8, dtype=torch.uint8, device=device)
    scales = torch.empty(2, 1, block_size, 1, device=device)
    ids = torch.zeros(1, 1, num_columns, dtype=torch.int32, device=device)
    query = torch.ones(1, 2, 16, device=device)
    output, lse = quantized_decode_attention(query, codes, codes, scales, scales, ids, ids, format="e2m1")
    assert output.abs().max() == 0
    assert lse.max() == float("-inf")


def test_ids_beyond_the_pool_are_not_read(device: torch.device) -> None:
    problem = make_quantized_problem("int8", num_blocks=4, num_pool_blocks=4)
    as_absent = problem.plain.block_table.clone()
    as_absent[..., 1:3] = -1
    problem.plain.block_table[..., 1], problem.plain.block_table[..., 2] = 4, 2**30
    tensors = list(problem.on(device))
    result = quantized_decode_attention(*tensors, format="int8")
    tensors[5] = as_absent.to(device)
    assert all(map(torch.equal, result, quantized_decode_attention(*tensors, format="int8")))


@pytest.mark.parametrize("format", CODE_DTYPES)
@pytest.mark.parametrize("scale_dtype", [FP32, BF16, E8M0])
def test_agrees_with_the_reference(device: torch.device, format: str, scale_dtype: torch.dtype) -> None:
    problem = make_quantized_problem(format, scale_dtype=scale_dtype, num_scales=2, batch=2, num_tables=2)
    tensors = problem.on(device)
    scale = problem.plain.scale
    got = public(*tensors, format=format, scale=scale, implementation="triton")
    assert_right(got, problem)
    wanted = public(*tensors, format=format, scale=scale, implementation="reference")
    assert_right(wanted, problem)


def test_the_scale_is_one_over_the_root_of_the_head_size(device: torch.device) -> None:
    tensors = make_quantized_problem("e2m1", head_dim=48).on(device)
    explicit = quantized_decode_attention(*tensors, format="e2m1", scale=48**-0.5)
    assert all(map(torch.equal, quantized_decode_attention(*tensors, format="e2m1"), explicit))


def test_keys_and_values_of_different_strides(device: torch.device) -> None:
    problem = make_quantized_problem("e4m3", num_scales=2, num_blocks=5)
    tensors = list(problem.on(device))
    for index, layout in ((1, "token-major"), (2, "padded"), (3, "padded"), (4, "token-major")):
        tensors[index] = inputs.in_layout(tensors[index], layout)
    got = quantized_decode_attention(*tensors, format="e4m3", scale=problem.plain.scale)
    assert_right(got, problem)
