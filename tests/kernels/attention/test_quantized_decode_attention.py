"""Attention over quantised K/V: the native kernel against dequantised K/V and a float64 softmax."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention import quantized_decode_attention, sparse_decode_attention
from dtk_kernels.attention.quantized_decode_attention import CODE_DTYPES
from dtk_kernels.formats import FORMATS
from dtk_kernels.quant import dequantize, pack, quantize, unpack
from dtk_kernels.workers import Workers

INT = torch.int32
Problem = tuple[torch.Tensor, ...]
pytestmark = pytest.mark.native


def quantized_pool(
    pool: torch.Tensor, format: str, num_scales: int, scale_format: str
) -> tuple[torch.Tensor, torch.Tensor]:
    block = (1, pool.shape[-1] // num_scales)
    codes, scales = quantize(pool, format, block=block, scale_format=scale_format)
    assert isinstance(scales, torch.Tensor)
    return pack(codes) if format == "e2m1" else codes, scales


def make(
    format: str, *, head_dim: int, group_size: int, block_size: int, num_scales: int,
    scale_format: str = "fp32", seed: int = 0, dtype: torch.dtype = torch.float32,
) -> Problem:  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randn(2, 7, 2, block_size, head_dim, generator=generator)
    keys, key_scales = quantized_pool(pool[0], format, num_scales, scale_format)
    values, value_scales = quantized_pool(pool[1], format, num_scales, scale_format)
    query = torch.randn(3, 2 * group_size, head_dim, generator=generator).to(dtype)
    table = torch.randint(-1, 7, (3, 2, 5), generator=generator, dtype=INT)
    lengths = torch.randint(0, block_size + 1, table.shape, generator=generator, dtype=INT)
    return query, keys, values, key_scales, value_scales, table, lengths


def expected(problem: Problem, format: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax in float64 over the tokens that the table lists, by table look-up of each code's value."""
    query, keys, values, key_scales, value_scales, table, lengths = problem
    head_dim = query.shape[2]
    group_size = query.shape[1] // keys.shape[1]
    code_values = torch.tensor(FORMATS[format].values, dtype=torch.float64)

    def dense(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        whole = unpack(codes, head_dim) if format == "e2m1" else codes
        numbers = code_values[whole.long() % len(code_values)]
        return numbers * scales.double().repeat_interleave(head_dim // scales.shape[-1], dim=-1)

    all_keys, all_values = dense(keys, key_scales), dense(values, value_scales)
    output = torch.zeros(query.shape, dtype=torch.float64)
    lse = torch.full(query.shape[:2], float("-inf"), dtype=torch.float64)
    for row in range(query.shape[0]):
        for head in range(query.shape[1]):
            kv_head = head // group_size
            entries = [
                (int(block), int(length))
                for block, length in zip(table[row, kv_head], lengths[row, kv_head], strict=True)
                if block >= 0 and length > 0
            ]
            if entries:
                k = torch.cat([all_keys[block, kv_head, :length] for block, length in entries])
                v = torch.cat([all_values[block, kv_head, :length] for block, length in entries])
                scores = k @ query[row, head].double() * head_dim**-0.5
                lse[row, head] = scores.logsumexp(0)
                output[row, head] = scores.softmax(0) @ v
    return output, lse


def assert_right(problem: Problem, format: str) -> None:
    result = quantized_decode_attention(*problem, format=format, implementation="native")
    for got, wanted in zip(result, expected(problem, format), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("format", CODE_DTYPES)
@pytest.mark.parametrize("group_size", [1, 3, 4, 8])
@pytest.mark.parametrize("head_dim", [64, 80, 128])
@pytest.mark.parametrize("num_scales", [1, 2, 4])
def test_values(format: str, group_size: int, head_dim: int, num_scales: int) -> None:
    problem = make(
        format,
        head_dim=head_dim,
        group_size=group_size,
        block_size=32,
        num_scales=num_scales,
        dtype=torch.half,
    )
    assert_right(problem, format)


@settings(max_examples=60, deadline=None)
@given(
    format=st.sampled_from(sorted(CODE_DTYPES)),
    scale_format=st.sampled_from(["fp32", "bf16", "e8m0"]),
    scale_channels=st.integers(1, 40),
    num_scales=st.integers(1, 6),
    group_size=st.integers(1, 6),
    block_size=st.integers(1, 70),
    seed=st.integers(0, 2**31),
)
def test_any_shape(
    format: str, scale_format: str, scale_channels: int, num_scales: int, group_size: int, block_size: int,
    seed: int,
) -> None:  # fmt: skip
    problem = make(
        format, head_dim=scale_channels * num_scales, group_size=group_size, block_size=block_size,
        num_scales=num_scales, scale_format=scale_format, seed=seed,
    )  # fmt: skip
    assert_right(problem, format)


@pytest.mark.parametrize("format", CODE_DTYPES)
def test_every_code_is_read_as_its_value(format: str) -> None:
    """A pool of single tokens whose value is one code each: the output is that value."""
    count = len(FORMATS[format].values)
    codes = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(count, 1, 1, 64)
    stored = pack(codes.contiguous()) if format == "e2m1" else codes.contiguous().view(CODE_DTYPES[format])
    scales = torch.full((count, 1, 1, 1), 0.5)
    table = torch.arange(count, dtype=INT)[:, None, None]
    arguments = (torch.zeros(count, 1, 64), torch.zeros_like(stored), stored, scales, scales, table)
    output, _ = quantized_decode_attention(*arguments, torch.ones_like(table), format=format)
    wanted = torch.tensor(FORMATS[format].values)[:, None] * 0.5
    torch.testing.assert_close(output[:, 0], wanted.expand(-1, 64), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("format", CODE_DTYPES)
@pytest.mark.parametrize("num_scales", [1, 4])
def test_a_nan_scale_shows_and_unlisted_ones_do_not(format: str, num_scales: int) -> None:
    problem = make(format, head_dim=64, group_size=2, block_size=8, num_scales=num_scales)
    *_, key_scales, value_scales, table, lengths = problem
    table[:], lengths[:] = 1, 5
    clean = quantized_decode_attention(*problem, format=format)
    for scales in (key_scales, value_scales):
        scales[0] = scales[2:] = float("nan")
        scales[1, :, 5:] = float("nan")
    assert all(map(torch.equal, quantized_decode_attention(*problem, format=format), clean))
    key_scales[1, 0, 4] = float("nan")
    assert quantized_decode_attention(*problem, format=format)[0][:, :2].isnan().all()


@pytest.mark.parametrize("format", CODE_DTYPES)
@pytest.mark.parametrize("exponent", [0, 1, 2, 127, 240, 255])
def test_powers_of_two_at_both_ends(format: str, exponent: int) -> None:
    """Tokens whose values are all 1: the output is the scales of the four blocks of channels."""
    biased = torch.tensor([exponent, 128, 3, exponent], dtype=torch.uint8)
    value_scales = biased.view(torch.float8_e8m0fnu).expand(1, 1, 37, 4).contiguous()
    key_scales = torch.full_like(value_scales, 1.0)
    ones, _ = quantize(torch.ones(1, 1, 37, 128), format, block=(1, 32), scale_format="e8m0")
    one_is_worth = FORMATS[format].values[int(ones.view(torch.uint8)[0, 0, 0, 0])]
    stored = pack(ones) if format == "e2m1" else ones
    query, table = torch.zeros(1, 3, 128), torch.zeros(1, 1, 1, dtype=INT)
    arguments = (query, stored, stored, key_scales, value_scales, table, torch.full_like(table, 32))
    output, _ = quantized_decode_attention(*arguments, format=format, implementation="native")
    powers = torch.tensor([2.0 ** (int(e) - 127) if e < 255 else float("nan") for e in biased])
    wanted = (powers * one_is_worth).repeat_interleave(32)
    torch.testing.assert_close(output[0], wanted.expand(3, -1), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("format", CODE_DTYPES)
def test_reference_and_workers_agree(format: str) -> None:
    problem = make(format, head_dim=96, group_size=3, block_size=16, num_scales=3, scale_format="e8m0")
    native = quantized_decode_attention(*problem, format=format, implementation="native")
    reference = quantized_decode_attention(*problem, format=format, implementation="reference")
    torch.testing.assert_close(native, reference, rtol=2e-5, atol=2e-5)
    with Workers(2) as workers:
        job = workers.submit_quantized_decode_attention(*problem, format=format)
        assert all(map(torch.equal, job.wait(), native))


def test_the_error_is_that_of_the_format_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    pool = torch.randn(4, 2, 32, 128, generator=generator)
    codes, scales = quantized_pool(pool, "int8", 1, "fp32")
    assert isinstance(scales, torch.Tensor)
    plain = dequantize(codes, scales, "int8", block=(1, 128))
    query = torch.randn(1, 4, 128, generator=generator)
    table = torch.arange(4, dtype=INT)[None, None]
    lengths = torch.full_like(table, 32)
    torch.testing.assert_close(
        quantized_decode_attention(query, codes, codes, scales, scales, table, lengths, format="int8"),
        sparse_decode_attention(query, plain, plain, table, lengths),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": ["int8"]}, r"format must be one of int8, e4m3, e2m1, got \['int8'\]"),
        ({"format": "e5m2"}, "format must be one of int8, e4m3, e2m1, got 'e5m2'"),
        ({"keys": torch.zeros(7, 2, 8, 63, dtype=torch.int8)}, "values"),
        ({"key_scales": torch.ones(7, 2, 8, 3)}, "value_scales"),
        ({"query": torch.zeros(3, 4, 62)}, "keys must hold 62 bytes a token"),
        ({"keys": torch.zeros(7, 2, 8, 64, dtype=torch.uint8)}, "keys"),
        ({"key_scales": torch.ones(7, 2, 8, 1).half()}, "key_scales"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, object], message: str) -> None:
    names = ("query", "keys", "values", "key_scales", "value_scales", "block_table", "block_lengths")
    problem = make("int8", head_dim=64, group_size=2, block_size=8, num_scales=1)
    arguments: dict[str, object] = dict(zip(names, problem, strict=True)) | {"format": "int8"} | change
    with pytest.raises(ValueError, match=message):
        quantized_decode_attention(**arguments)  # type: ignore[arg-type]
