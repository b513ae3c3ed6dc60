"""Tensors whose memory is not what it seems: lazily negated views, layouts over themselves."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dtk_kernels import attention, kv
from dtk_kernels._memory import has_own_memory_for_each_value
from dtk_kernels._native_calls import view
from dtk_kernels.workers import Workers
from tests.kernels.implementations import BOTH

INT = torch.int32
IDS = torch.tensor([0, 2], dtype=INT)


def _lazy(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same values as a view of their negatives, where torch has such a view of that dtype."""
    if not tensor.is_floating_point():
        return tensor
    lazy: torch.Tensor = torch._neg_view(tensor.neg())
    assert lazy.is_neg()
    return lazy


def _calls() -> dict[str, tuple[Any, ...]]:
    source = torch.Generator().manual_seed(5)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source)

    table = torch.tensor([[0, 2, -1]], dtype=INT)
    pools = (randn(3, 2, 4, 8), randn(3, 2, 4, 8))
    return {
        "block_digest": (pools[0], torch.full((3,), 4, dtype=INT)),
        "block_score": (randn(1, 4, 8), randn(3, 2, 8), randn(3, 2, 8), table),
        "select_blocks": (randn(1, 2, 5), 2),
        "sparse_decode_attention": (randn(1, 4, 8), *pools, table[None], torch.full_like(table, 3)[None]),
        "merge_partials": (randn(2, 3, 8), randn(2, 3)),
        "gather_blocks": (randn(3, 4), IDS),
    }


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize("name", _calls())
def test_lazily_negated_inputs_count_with_their_values(name: str, implementation: str | None) -> None:
    arguments = _calls()[name]
    lazy = [_lazy(x) if isinstance(x, torch.Tensor) else x for x in arguments]
    function = getattr(attention, name, None) or getattr(kv, name)
    expected = function(*arguments, implementation=implementation)
    torch.testing.assert_close(function(*lazy, implementation=implementation), expected, rtol=0, atol=0)


@pytest.mark.parametrize("implementation", BOTH)
def test_conjugated_inputs_count_with_their_values(implementation: str | None) -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    for lazy in (z.conj(), z.conj().imag):
        dense = lazy.clone().resolve_conj().resolve_neg()
        assert lazy.is_conj() or lazy.is_neg()
        assert torch.equal(kv.gather_blocks(lazy, IDS, implementation=implementation), dense[[0, 2]])
        for write in (kv.copy_blocks_, kv.scatter_blocks_):
            target = torch.zeros_like(dense)
            if write is kv.copy_blocks_:
                kv.copy_blocks_(lazy, IDS, target, IDS, implementation=implementation)
            else:
                kv.scatter_blocks_(target, IDS, lazy[[0, 2]].conj().conj(), implementation=implementation)
            assert torch.equal(target[[0, 2]], dense[[0, 2]])


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize("kind", ["negated", "conjugated", "expanded", "self-overlapping"])
def test_unfit_targets_are_refused_and_stay_as_they_were(kind: str, implementation: str | None) -> None:
    base = torch.zeros(3, 4, dtype=torch.complex64 if kind == "conjugated" else torch.float32)
    make: dict[str, Callable[[], torch.Tensor]] = {
        "negated": lambda: torch._neg_view(base),
        "conjugated": base.conj,
        "expanded": lambda: base[:, :1].expand(3, 4),
        "self-overlapping": lambda: base.flatten().unfold(0, 4, 2)[:3],
    }
    target = make[kind]()
    blocks = torch.ones(2, 4, dtype=base.dtype)
    with pytest.raises(ValueError, match=r"^pool is written in place and must"):
        kv.scatter_blocks_(target, IDS, blocks, implementation=implementation)
    with pytest.raises(ValueError, match=r"^target_pool is written in place and must"):
        kv.copy_blocks_(torch.ones_like(base), IDS, target, IDS, implementation=implementation)
    assert not base.any()


def test_workers_see_the_values_of_lazy_inputs() -> None:
    arguments = _calls()["sparse_decode_attention"]
    expected = attention.sparse_decode_attention(*arguments)
    lazy: list[Any] = [_lazy(x) for x in arguments]
    source, target = torch.randn(3, 4), torch.zeros(3, 4)
    with Workers(1) as workers:
        job = workers.submit_sparse_decode_attention(*lazy)
        torch.testing.assert_close(job.wait(), expected, rtol=0, atol=0)
        workers.submit_copy_blocks([(_lazy(source), IDS, target, IDS)]).wait()
        assert torch.equal(target[[0, 2]], source[[0, 2]])
        with pytest.raises(ValueError, match=r"^target_pool is written in place and must"):
            workers.submit_copy_blocks([(source, IDS, torch._neg_view(target), IDS)])


def test_no_pointer_of_a_lazy_tensor_leaves_for_the_compiled_module() -> None:
    with pytest.raises(ValueError, match="native kernels read memory as it is"):
        view(torch.randn(3, dtype=torch.complex64).conj())
    with pytest.raises(ValueError, match="got a tensor on meta"):
        view(torch.empty(3, device="meta"))


def test_no_lazy_tensor_reaches_a_triton_kernel() -> None:
    from dtk_kernels.triton_support import launch

    with pytest.raises(ValueError, match="Triton kernels read memory as it is"):
        launch(None, (1,), torch._neg_view(torch.zeros(3)), device=torch.device("cpu"))


@given(
    shape=st.lists(st.integers(0, 3), max_size=3),
    data=st.data(),
)
def test_layouts_over_themselves_are_recognised(shape: list[int], data: st.DataObject) -> None:
    strides = data.draw(st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape)))
    tensor = torch.empty(100).as_strided(shape, strides)
    places = [
        sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, shape))
    ]
    if has_own_memory_for_each_value(tensor):
        assert len(set(places)) == len(places)


@given(sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4), data=st.data())
def test_slices_and_permutations_have_their_own_memory(sizes: list[int], data: st.DataObject) -> None:
    tensor = torch.empty(sizes).permute(data.draw(st.permutations(range(len(sizes)))))
    steps = data.draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes)))
    assert has_own_memory_for_each_value(tensor[tuple(slice(None, None, step) for step in steps)])


def test_in_place_operations_can_be_compiled() -> None:
    def step(pool: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
        kv.scatter_blocks_(pool, IDS, blocks)
        kv.copy_blocks_(pool, IDS, blocks, IDS.clamp(max=1))
        return blocks

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    pools, blocks = [torch.zeros(3, 4), torch.zeros(3, 4)], [torch.ones(2, 4), torch.ones(2, 4)]
    assert torch.equal(compiled(pools[0], blocks[0]), step(pools[1], blocks[1]))
    assert torch.equal(pools[0], pools[1])
