"""Selection of blocks: integers, so the kernel must equal the reference exactly, ties and all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention.select_blocks.reference import select_blocks as reference
from dtk_kernels.attention.select_blocks.triton_kernel import MAX_COLUMNS, select_blocks
from tests.kernels.triton import inputs

pytestmark = pytest.mark.interp

# Few values, so that ties are common, with everything that compares oddly among them.
special_scores = st.sampled_from(
    (0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3.4e38, -3.4e38, float("inf"), float("-inf"), float("nan"))
)


@settings(max_examples=25)
@given(
    rows=st.integers(1, 4).flatmap(
        lambda groups: st.tuples(st.just(groups), st.integers(1, 3), st.integers(1, 70))
    ),
    num_selected=st.integers(0, 80),
    with_forced=st.booleans(),
    data=st.data(),
    seed=inputs.seeds,
)
def test_equals_reference(
    device: torch.device,
    rows: tuple[int, int, int],
    num_selected: int,
    with_forced: bool,
    data: st.DataObject,
    seed: int,
) -> None:
    groups, batch, num_blocks = rows
    source = inputs.generator(seed)
    pool = torch.tensor([*data.draw(st.lists(special_scores, min_size=1, max_size=6)), 0.5, 0.25])
    scores = pool[torch.randint(len(pool), (batch, groups, num_blocks), generator=source)].to(device)
    forced = None
    if with_forced:
        forced = torch.zeros(batch, num_blocks, dtype=torch.bool)
        for row in forced:
            count = int(torch.randint(min(num_selected, num_blocks) + 1, (), generator=source))
            row[torch.randperm(num_blocks, generator=source)[:count]] = True
        forced = forced.to(device)
    with inputs.poisoned_memory():
        selected = select_blocks(scores, num_selected, forced=forced)
    assert selected.dtype == torch.int32
    assert torch.equal(selected, reference(scores, num_selected, forced=forced))


@pytest.mark.parametrize("num_blocks", [1, 63, 1000, 8192, MAX_COLUMNS])
def test_long_rows(device: torch.device, num_blocks: int) -> None:
    scores = torch.randn(1, 2, num_blocks, generator=inputs.generator(num_blocks)).to(device)
    scores[0, 1] = scores[0, 1].round(decimals=1)  # thousands of ties
    for num_selected in (1, 64, num_blocks // 2 + 1):
        selected = select_blocks(scores, num_selected)
        assert torch.equal(selected, reference(scores, num_selected))


def test_no_column(device: torch.device) -> None:
    assert select_blocks(torch.empty(2, 1, 0, device=device), 3).tolist() == [[[-1] * 3]] * 2


def test_more_columns_than_a_program_holds_is_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match="up to 32768 columns, got 32769"):
        select_blocks(torch.zeros(1, 1, MAX_COLUMNS + 1, device=device), 1)
