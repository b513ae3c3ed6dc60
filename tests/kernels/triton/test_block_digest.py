"""Block digests: minimum and maximum are exact, so the kernel must equal the reference bit for bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention.block_digest.reference import block_digest as reference
from dtk_kernels.attention.block_digest.triton_kernel import block_digest
from tests.kernels.triton import inputs

pytestmark = pytest.mark.interp


@settings(max_examples=20)
@given(
    num_blocks=st.integers(0, 6),
    num_heads=st.integers(1, 4),
    block_size=inputs.block_sizes,
    head_dim=inputs.head_dims,
    dtype=inputs.dtypes,
    layout=inputs.layouts,
    seed=inputs.seeds,
)
def test_equals_reference(
    device: torch.device,
    num_blocks: int,
    num_heads: int,
    block_size: int,
    head_dim: int,
    dtype: torch.dtype,
    layout: str,
    seed: int,
) -> None:
    source = inputs.generator(seed)
    keys = inputs.randn((num_blocks, num_heads, block_size, head_dim), source, dtype)
    lengths = inputs.randint(0, block_size, (num_blocks,), source)
    for block, length in enumerate(lengths.tolist()):
        keys[block, :, length:] = float("nan")
    keys, lengths = inputs.in_layout(keys, layout).to(device), lengths.to(device)
    with inputs.poisoned_memory():
        low, high = block_digest(keys, lengths)
    expected_low, expected_high = reference(keys, lengths)
    assert low.dtype == high.dtype == dtype
    assert torch.equal(low, expected_low)
    assert torch.equal(high, expected_high)


@pytest.mark.parametrize(("block_size", "head_dim"), [(70, 128), (40, 256), (5, 1000)])
def test_blocks_of_several_tiles(device: torch.device, block_size: int, head_dim: int) -> None:
    source = inputs.generator(block_size)
    keys = inputs.randn((4, 2, block_size, head_dim), source, torch.float16).to(device)
    lengths = torch.tensor([block_size, block_size - 1, 1, 0], dtype=torch.int32, device=device)
    assert all(map(torch.equal, block_digest(keys, lengths), reference(keys, lengths)))
    keys[:, :, 0] = float("nan")  # in another tile than the last
    assert block_digest(keys, lengths)[0][:3].isnan().all()


def test_nan_among_the_tokens_that_count_shows_in_its_channel(device: torch.device) -> None:
    keys = torch.zeros(1, 2, 20, 5, device=device)
    keys[0, 1, 17, 3] = float("nan")
    low, high = block_digest(keys, torch.tensor([20], dtype=torch.int32, device=device))
    for digest in (low, high):
        where = digest.isnan().nonzero().tolist()
        assert where == [[0, 1, 3]]


def test_infinite_keys_are_kept(device: torch.device) -> None:
    keys = torch.tensor([[[[float("inf")], [1.0]]], [[[float("-inf")], [2.0]]]], device=device)
    low, high = block_digest(keys, torch.tensor([2, 2], dtype=torch.int32, device=device))
    assert low.flatten().tolist() == [1.0, float("-inf")]
    assert high.flatten().tolist() == [float("inf"), 2.0]
