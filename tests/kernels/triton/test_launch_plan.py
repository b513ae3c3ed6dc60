"""How attention is cut into programs: every token is covered, and GPUs of several sizes are kept busy."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention.quantized_decode_attention import launch_plan as quantized_launch_plan
from dtk_kernels.attention.sparse_decode_attention import launch_plan
from dtk_kernels.triton_support import stride_unit

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Programs at a time on an A100, an H200 and a B200.
PLACES = (2 * 108, 3 * 132, 3 * 148)


@given(
    query=st.sampled_from(DTYPES),
    pool=st.sampled_from(DTYPES),
    head_dim=st.integers(1, 512),
    block_size=st.integers(1, 1000),
    group_size=st.integers(1, 128),
)
def test_tiles_cover_blocks_and_heads(
    query: torch.dtype, pool: torch.dtype, head_dim: int, block_size: int, group_size: int
) -> None:
    tiles = launch_plan.tiles_for(
        query, pool, head_dim=head_dim, block_size=block_size, group_size=group_size
    )
    assert tiles.channels >= head_dim
    assert (tiles.head_chunks - 1) * tiles.rows < group_size <= tiles.head_chunks * tiles.rows
    if block_size >= tiles.tokens:
        assert tiles.columns == 1
        assert (tiles.tiles_per_block - 1) * tiles.tokens < block_size <= tiles.tiles_per_block * tiles.tokens
    else:
        assert tiles.tiles_per_block == 1
        assert tiles.columns * block_size <= tiles.tokens < (tiles.columns + 1) * block_size
    assert tiles.in_fp32 == (not (query == pool and pool.itemsize == 2))
    assert tiles.shared_bytes <= 96 * 1024  # what a program may have on the smallest of GPUs, about


@given(
    format=st.sampled_from(("int8", "e4m3", "e2m1")),
    scale_channels=st.integers(1, 128),
    num_scales=st.integers(1, 16),
    block_size=st.integers(1, 200),
    group_size=st.integers(1, 64),
)
def test_parts_of_a_token_are_whole_bytes_and_fit(
    format: str, scale_channels: int, num_scales: int, block_size: int, group_size: int
) -> None:
    head_dim = scale_channels * num_scales
    tiles = quantized_launch_plan.tiles_for(
        format, num_scales=num_scales, head_dim=head_dim, block_size=block_size, group_size=group_size
    )
    assert all(each & (each - 1) == 0 for each in (tiles.tokens, tiles.channels, tiles.rows))
    num_bytes = quantized_launch_plan.code_bytes(format, head_dim)
    in_parts = quantized_launch_plan.in_parts(format, head_dim, num_scales)
    assert tiles.in_fp32 == (not in_parts)
    parts = num_scales if in_parts else 1
    assert num_bytes % parts == 0
    assert num_bytes // parts <= tiles.channels
    if parts > 1:
        assert scale_channels * (4 if format == "e2m1" else 8) == 8 * num_bytes // parts
        assert tiles.channels < 2 * num_bytes // parts  # little is padded
    assert tiles.columns * block_size <= max(tiles.tokens, block_size)


@settings(max_examples=300)
@given(
    steps=st.integers(32, 3000),  # from 2048 tokens on
    programs=st.integers(1, 5000),
    places=st.sampled_from(PLACES),
)
def test_splits_fill_the_gpu(steps: int, programs: int, places: int) -> None:
    splits = launch_plan.split_count(steps, programs, places)
    assert 1 <= splits <= min(steps, 128)
    rounds, rest = divmod(programs * splits, places)
    if programs * min(steps, 128) >= places:
        assert rounds + rest / places > 0.4
    # A last round with few programs lasts as long as half a full one, and is a small part of the whole.
    assert rounds == 0 or rest == 0 or (0.5 - rest / places) / rounds < 0.1


@pytest.mark.parametrize("places", PLACES)
def test_no_split_where_sequences_and_heads_fill_the_gpu(places: int) -> None:
    assert launch_plan.split_count(32, places, places) == 1
    assert launch_plan.split_count(32, math.ceil(0.6 * places), places) == 1
    assert launch_plan.split_count(1, 1, places) == 1


@pytest.mark.parametrize(("num_columns", "block_size"), [(64, 32), (63, 32), (1, 32), (33, 64), (17, 24)])
def test_parts_are_whole_tiles(num_columns: int, block_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(multi_processor_count=132, shared_memory_per_multiprocessor=233472)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    device = torch.device("cuda")
    tiles = launch_plan.tiles_for(
        torch.bfloat16, torch.bfloat16, head_dim=128, block_size=block_size, group_size=4
    )
    assert launch_plan.programs_at_once(tiles, device) == 396
    columns = launch_plan.columns_for_each_split(num_columns, tiles, 8, device)
    assert columns % tiles.columns == 0
    assert 0 < columns < num_columns + tiles.columns
    assert launch_plan.columns_for_each_split(num_columns, tiles, 8, torch.device("cpu")) == num_columns


@given(
    itemsize=st.sampled_from((2, 4)),
    strides=st.lists(st.integers(0, 2**40), min_size=1, max_size=6),
)
def test_strides_in_units_lose_nothing(itemsize: int, strides: list[int]) -> None:
    unit = stride_unit(itemsize, *strides)
    assert unit * itemsize <= 16
    assert unit & (unit - 1) == 0
    assert all(stride % unit == 0 for stride in strides)
    assert unit * itemsize == 16 or any(stride % (2 * unit) for stride in strides)
