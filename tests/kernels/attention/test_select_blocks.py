"""Block selection against sorting: every case of a small domain, and random larger ones."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention import select_blocks
from tests.kernels.attention.oracles import selection
from tests.kernels.implementations import BOTH, DIRECT

VALUES = [-math.inf, math.nan, -1.0, -0.0, 0.0, 2.0, math.inf]


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_every_small_case(implementation: str, num_blocks: int) -> None:
    rows = [
        (list(scores), list(forced))
        for scores in itertools.product(VALUES, repeat=num_blocks)
        for forced in itertools.product([False, True], repeat=num_blocks)
    ]
    for num_selected in range(num_blocks + 2):
        allowed = [row for row in rows if sum(row[1]) <= num_selected]
        scores = torch.tensor([row[0] for row in allowed], dtype=torch.float32)[:, None]
        forced = torch.tensor([row[1] for row in allowed])
        chosen = select_blocks(scores, num_selected, forced=forced, implementation=implementation)
        assert chosen.dtype == torch.int32
        assert chosen[:, 0].tolist() == [selection(*row, num_selected) for row in allowed]


@pytest.mark.parametrize("implementation", BOTH)
@settings(max_examples=80)
@given(data=st.data())
def test_equals_sorting(data: st.DataObject, implementation: str | None) -> None:
    batch, num_groups = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 3))
    num_blocks = data.draw(st.integers(0, 40))
    row = st.lists(st.sampled_from(VALUES) | st.floats(width=32), min_size=num_blocks, max_size=num_blocks)
    scores = [[data.draw(row) for _ in range(num_groups)] for _ in range(batch)]
    flags = st.lists(st.booleans(), min_size=num_blocks, max_size=num_blocks)
    forced = [data.draw(flags) for _ in range(batch)]
    num_selected = data.draw(st.integers(max((sum(f) for f in forced), default=0), num_blocks + 3))
    chosen = select_blocks(
        torch.tensor(scores, dtype=torch.float32).reshape(batch, num_groups, num_blocks),
        num_selected,
        forced=torch.tensor(forced, dtype=torch.bool).reshape(batch, num_blocks),
        implementation=implementation,
    )
    expected = [
        [selection(scores[b][g], forced[b], num_selected) for g in range(num_groups)] for b in range(batch)
    ]
    assert chosen.shape == (batch, num_groups, num_selected)
    assert chosen.tolist() == expected


# Kernels may treat long rows in another way, such as by a sample of them.
LONG = [4095, 4096, 5003, 9000]


@pytest.mark.parametrize("implementation", DIRECT)
@settings(max_examples=60)
@given(data=st.data())
def test_long_rows_equal_sorting(data: st.DataObject, implementation: str) -> None:
    num_blocks = data.draw(st.sampled_from(LONG) | st.integers(41, 1000))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    scores = torch.randn(num_blocks, generator=generator) * data.draw(st.sampled_from([1e-42, 1.0, 3e38]))
    if data.draw(st.booleans()):  # many equal scores, also where the selection ends
        scores = (scores.sign() * (scores.abs().log1p() * 2).floor()).nan_to_num()
    for special in (math.nan, -math.inf, math.inf, -0.0, 0.0):
        share = data.draw(st.sampled_from([0.0, 0.01, 0.5]))
        scores[torch.rand(num_blocks, generator=generator) < share] = special
    forced = torch.rand(num_blocks, generator=generator) < data.draw(st.sampled_from([0.0, 0.005, 0.9]))
    least = int(forced.sum())
    num_selected = data.draw(
        st.sampled_from([least, least + 1, num_blocks, num_blocks + 70])
        | st.integers(least, min(least + 64, num_blocks))
        | st.integers(least, num_blocks)
    )
    chosen = select_blocks(
        scores[None, None], num_selected, forced=forced[None], implementation=implementation
    )
    assert chosen[0, 0].tolist() == selection(scores.tolist(), forced.tolist(), num_selected)


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("num_blocks", LONG)
def test_regular_rows_do_not_mislead(implementation: str, num_blocks: int) -> None:
    column = torch.arange(num_blocks)
    for period in range(14, 38):
        for high_at in (0, 1):
            scores = torch.where(column % period == high_at, 5.0, -5.0) + column % 3
            for num_selected in (1, 64, num_blocks // period, num_blocks // period + 200, num_blocks - 1):
                chosen = select_blocks(scores[None, None], num_selected, implementation=implementation)
                expected = scores.sort(descending=True, stable=True).indices[:num_selected].sort().values
                assert torch.equal(chosen[0, 0], expected.int())


@pytest.mark.parametrize("implementation", DIRECT)
def test_without_forced_columns_and_with_strides(implementation: str) -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn((5, 2, 33), generator=generator).transpose(0, 1)
    chosen = select_blocks(scores, 7, implementation=implementation)
    expected = scores.topk(7, dim=-1).indices.sort(dim=-1).values
    assert torch.equal(chosen, expected.int())


@pytest.mark.parametrize("implementation", BOTH)
def test_more_forced_than_selected_is_an_error(implementation: str | None) -> None:
    forced = torch.tensor([[False, True, False], [True, True, True]])
    with pytest.raises(ValueError, match=r"^num_selected is 2, but a row of forced has 3 columns set$"):
        select_blocks(torch.zeros(2, 1, 3), 2, forced=forced, implementation=implementation)
