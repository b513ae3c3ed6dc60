"""Block digests against a token-by-token min and max: exact in every dtype."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention import block_digest
from tests.kernels.attention.cases import DTYPES, head_dims, strided_pool
from tests.kernels.attention.oracles import digest
from tests.kernels.implementations import BOTH, DIRECT


@pytest.mark.parametrize("implementation", BOTH)
@settings(max_examples=60)
@given(data=st.data())
def test_equals_a_token_by_token_digest(data: st.DataObject, implementation: str | None) -> None:
    shape = (
        data.draw(st.integers(0, 4)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 40)),
        data.draw(head_dims()),
    )  # fmt: skip
    dtype = data.draw(DTYPES)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    lengths = torch.randint(0, shape[2] + 1, (shape[0],), generator=generator, dtype=torch.int32)
    counted = torch.arange(shape[2]) < lengths[:, None]
    keys = strided_pool(data.draw, shape, dtype, math.nan)
    # Powers from subnormal to near the top of half precision.
    size = data.draw(st.sampled_from([1e-7, 1.0, 1e4]))
    fresh = (torch.randn(shape, generator=generator) * size).to(dtype)
    keys.copy_(torch.where(counted[:, None, :, None], fresh, keys))
    result = block_digest(keys, lengths, implementation=implementation)
    for computed, expected in zip(result, digest(keys, lengths), strict=True):
        assert computed.dtype == dtype
        assert torch.equal(computed, expected)


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_nan_key_shows_in_both_and_infinities_are_values(implementation: str, dtype: torch.dtype) -> None:
    keys = torch.zeros((1, 1, 5, 9), dtype=dtype)
    keys[0, 0, 1, 0] = keys[0, 0, 4, 8] = math.nan
    keys[0, 0, 2, 1], keys[0, 0, 3, 2] = math.inf, -math.inf
    low, high = block_digest(keys, torch.tensor([5], dtype=torch.int32), implementation=implementation)
    expected_low = [math.nan, 0, -math.inf, 0, 0, 0, 0, 0, math.nan]
    expected_high = [math.nan, math.inf, 0, 0, 0, 0, 0, 0, math.nan]
    assert torch.equal(low[0, 0].isnan(), torch.tensor(expected_low).isnan())
    assert torch.equal(low[0, 0].nan_to_num(), torch.tensor(expected_low, dtype=dtype).nan_to_num())
    assert torch.equal(high[0, 0].isnan(), torch.tensor(expected_high).isnan())
    assert torch.equal(high[0, 0].nan_to_num(), torch.tensor(expected_high, dtype=dtype).nan_to_num())


@pytest.mark.native
def test_every_half_precision_value_survives() -> None:
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        keys = bits.view(dtype).reshape(256, 1, 1, 256)
        keys = keys.masked_fill(keys.isnan(), 1.0)
        low, high = block_digest(keys, torch.ones(256, dtype=torch.int32), implementation="native")
        assert torch.equal(low.view(torch.int16), keys[:, :, 0].view(torch.int16))
        assert torch.equal(high.view(torch.int16), keys[:, :, 0].view(torch.int16))


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_any_bits_are_in_the_order_of_the_floats(implementation: str, dtype: torch.dtype) -> None:
    """Every 16-bit value with every exponent and sign of another one; in float32 as many random bits."""
    generator = torch.Generator().manual_seed(7)
    if dtype == torch.float32:
        bits = torch.randint(-(2**31), 2**31, (3, 2**16), generator=generator).int()
    else:
        bits = torch.arange(-(2**15), 2**15).repeat(3, 1)
        bits[1] = bits[1, torch.randperm(2**16, generator=generator)]
        bits[2] = bits[2, torch.randperm(2**16, generator=generator)]
        bits = bits.short()
    keys = bits.view(dtype).reshape(3, 1024, 1, 64).permute(1, 2, 0, 3)
    low, high = block_digest(keys, torch.full((1024,), 3, dtype=torch.int32), implementation=implementation)
    expected_low, expected_high = keys[:, :, 0].float(), keys[:, :, 0].float()
    for slot in (1, 2):
        expected_low = torch.minimum(expected_low, keys[:, :, slot].float())  # NaN, if any is
        expected_high = torch.maximum(expected_high, keys[:, :, slot].float())
    assert 100 < int(expected_low.isnan().sum()) < 2**15
    for computed, expected in ((low, expected_low), (high, expected_high)):
        assert torch.equal(computed.isnan(), expected.isnan())
        assert torch.equal(computed.float().nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))
