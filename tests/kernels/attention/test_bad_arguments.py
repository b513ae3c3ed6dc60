"""Bad arguments of the attention operations: one clear line, the same from every implementation."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dtk_kernels import attention
from tests.kernels.implementations import BOTH

INT = torch.int32


def _attention_arguments() -> dict[str, Any]:
    return {
        "query": torch.zeros(2, 6, 8),
        "keys": torch.zeros(5, 3, 4, 8),
        "values": torch.zeros(5, 3, 4, 8),
        "block_table": torch.zeros((2, 1, 3), dtype=INT),
        "block_lengths": torch.ones((2, 1, 3), dtype=INT),
    }


def _score_arguments() -> dict[str, Any]:
    return {
        "query": torch.zeros(2, 6, 8),
        "key_min": torch.zeros(5, 3, 8),
        "key_max": torch.zeros(5, 3, 8),
        "block_table": torch.zeros((2, 4), dtype=INT),
    }


def _digest_arguments() -> dict[str, Any]:
    return {"keys": torch.zeros(5, 3, 4, 8), "block_lengths": torch.zeros(5, dtype=INT)}


def _select_arguments() -> dict[str, Any]:
    return {
        "scores": torch.zeros(2, 1, 4),
        "num_selected": 2,
        "forced": torch.zeros((2, 4), dtype=torch.bool),
    }


def _merge_arguments() -> dict[str, Any]:
    return {"outputs": torch.zeros(3, 2, 8), "lses": torch.zeros(3, 2)}


GOOD: dict[str, Callable[[], dict[str, Any]]] = {
    "sparse_decode_attention": _attention_arguments,
    "block_score": _score_arguments,
    "block_digest": _digest_arguments,
    "select_blocks": _select_arguments,
    "merge_partials": _merge_arguments,
}

# operation, argument, wrong value, the whole message
BAD: list[tuple[str, str, Any, str]] = [
    ("sparse_decode_attention", "query", [1.0], "query must be a tensor, got list"),
    ("sparse_decode_attention", "query", torch.zeros(2, 6), "query must have shape [B, Hq, D], got [2, 6]"),
    (
        "sparse_decode_attention", "query", torch.zeros(2, 7, 8),
        "query has 7 heads, which is no positive multiple of the 3 KV heads",
    ),
    (
        "sparse_decode_attention", "keys", torch.zeros(5, 3, 4, 16),
        "keys has shape [5, 3, 4, 16]: dim 3 (D) must be 8 as in query, got 16",
    ),
    (
        "sparse_decode_attention", "values", torch.zeros(5, 3, 5, 8),
        "values has shape [5, 3, 5, 8]: dim 2 (S) must be 4 as in keys, got 5",
    ),
    (
        "sparse_decode_attention", "keys", torch.zeros(5, 3, 0, 8),
        "keys must have no empty dim S, got shape [5, 3, 0, 8]",
    ),
    (
        "sparse_decode_attention", "values", torch.zeros(5, 3, 4, 8).half(),
        "values must have the dtype of keys (float32), got float16",
    ),
    (
        "sparse_decode_attention", "query", torch.zeros(2, 6, 8).double(),
        "query must be float32 or float16 or bfloat16, got float64",
    ),
    (
        "sparse_decode_attention", "block_table", torch.zeros((2, 1, 3), dtype=torch.int64),
        "block_table must be int32, got int64",
    ),
    (
        "sparse_decode_attention", "block_lengths", torch.zeros((2, 1, 4), dtype=INT),
        "block_lengths has shape [2, 1, 4]: dim 2 (N) must be 3 as in block_table, got 4",
    ),
    (
        "sparse_decode_attention", "query", torch.zeros(2, 8, 6).transpose(1, 2),
        "query must be contiguous in its last dim, got strides (48, 1, 6)",
    ),
    (
        "sparse_decode_attention", "keys", torch.zeros(5, 3, 8, 4).transpose(2, 3),
        "keys must be contiguous in its last dim, got strides (96, 32, 1, 4)",
    ),
    (
        "sparse_decode_attention", "block_table", torch.full((2, 1, 3), 5, dtype=INT),
        "block_table holds 5; ids are -1 (no block) or below 5, the pool size",
    ),
    (
        "sparse_decode_attention", "block_table", torch.full((2, 1, 3), -2, dtype=INT),
        "block_table holds -2; ids are -1 (no block) or below 5, the pool size",
    ),
    (
        "sparse_decode_attention", "block_lengths", torch.full((2, 1, 3), 5, dtype=INT),
        "block_lengths holds 5; lengths must be in 0..4, the block size",
    ),
    (
        "sparse_decode_attention", "block_lengths", torch.full((2, 1, 3), -1, dtype=INT),
        "block_lengths holds -1; lengths must be in 0..4, the block size",
    ),
    (
        "block_score", "key_max", torch.zeros(4, 3, 8),
        "key_max has shape [4, 3, 8]: dim 0 (P) must be 5 as in key_min, got 4",
    ),
    (
        "block_score", "key_max", torch.zeros(5, 3, 8).bfloat16(),
        "key_max must have the dtype of key_min (float32), got bfloat16",
    ),
    (
        "block_score", "block_table", torch.full((2, 4), 9, dtype=INT),
        "block_table holds 9; ids are -1 (no block) or below 5, the pool size",
    ),
    (
        "block_score", "head_reduction", "mean",
        "head_reduction must be one of layer, group_sum, group_max, got 'mean'",
    ),
    (
        "block_digest", "block_lengths", torch.full((5,), 5, dtype=INT),
        "block_lengths holds 5; lengths must be in 0..4, the block size",
    ),
    ("block_digest", "block_lengths", torch.zeros(5), "block_lengths must be int32, got float32"),
    ("sparse_decode_attention", "scale", float("nan"), "scale must be a finite float32 number, got nan"),
    ("sparse_decode_attention", "scale", float("-inf"), "scale must be a finite float32 number, got -inf"),
    ("sparse_decode_attention", "scale", 1e39, "scale must be a finite float32 number, got 1e+39"),
    ("sparse_decode_attention", "scale", "1", "scale must be a number or None, got str"),
    (
        "sparse_decode_attention", "keys", torch.zeros(5, 3, 4, 8).to_sparse(),
        "keys must be a dense tensor, got a tensor of layout sparse_coo",
    ),
    (
        "block_digest", "keys", torch.zeros(5, 8).to_sparse(),
        "keys must be a dense tensor, got a tensor of layout sparse_coo",
    ),
    (
        "merge_partials", "outputs", torch.nested.nested_tensor([torch.zeros(2, 8)], layout=torch.jagged),
        "outputs must be a dense tensor, got a nested tensor of layout jagged",
    ),
    ("select_blocks", "num_selected", -1, "num_selected must be at least 0, got -1"),
    ("select_blocks", "num_selected", 2.5, "num_selected must be an integer, got 2.5"),
    ("select_blocks", "num_selected", "3", "num_selected must be an integer, got '3'"),
    *(
        (
            "select_blocks", "num_selected", count,
            f"num_selected must be at most 1048576, or the 4 columns of scores if they are more, got {count}",
        )
        for count in (2**20 + 1, 2**31, 2**63)
    ),
    ("select_blocks", "scores", torch.zeros(2, 1, 4).half(), "scores must be float32, got float16"),
    ("select_blocks", "forced", torch.zeros((2, 4), dtype=INT), "forced must be bool, got int32"),
    (
        "select_blocks", "forced", torch.zeros((2, 5), dtype=torch.bool),
        "forced has shape [2, 5]: dim 1 (N) must be 4 as in scores, got 5",
    ),
    (
        "merge_partials", "lses", torch.zeros(3, 3),
        (
            "outputs must have shape [num_partials, ..., head_dim] and lses the same without head_dim,"
            " got [3, 2, 8] and [3, 3]"
        ),
    ),
    ("merge_partials", "outputs", torch.zeros(3, 2, 8).half(), "outputs must be float32, got float16"),
    ("merge_partials", "lses", None, "lses must be a tensor, got NoneType"),
]  # fmt: skip


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize(("operation", "argument", "value", "message"), BAD)
def test_each_mistake_has_its_line(
    operation: str, argument: str, value: object, message: str, implementation: str | None
) -> None:
    arguments = GOOD[operation]()
    function = getattr(attention, operation)
    function(**arguments, implementation=implementation)
    with pytest.raises((ValueError, TypeError)) as caught:
        function(**(arguments | {argument: value}), implementation=implementation)
    assert str(caught.value) == message


@pytest.mark.parametrize("implementation", BOTH)
def test_groups_of_a_table_are_one_or_the_kv_heads(implementation: str | None) -> None:
    arguments = _attention_arguments()
    for name in ("block_table", "block_lengths"):
        arguments[name] = torch.zeros((2, 2, 3), dtype=INT)
    with pytest.raises(
        ValueError, match="block_table has 2 groups; one for all heads or one for each of the 3"
    ):
        attention.sparse_decode_attention(**arguments, implementation=implementation)


@pytest.mark.parametrize("operation", GOOD)
def test_devices_must_agree_and_suit_the_implementation(operation: str) -> None:
    function = getattr(attention, operation)
    arguments = GOOD[operation]()
    on_meta = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    second = [name for name, value in arguments.items() if isinstance(value, torch.Tensor)][1]
    with pytest.raises(ValueError, match=rf"^{second} must be on the device of \w+ \(cpu\), got meta$"):
        function(**(arguments | {second: on_meta[second]}), implementation="reference")


@pytest.mark.native
@pytest.mark.parametrize("operation", GOOD)
def test_native_takes_cpu_tensors_only(operation: str) -> None:
    arguments = GOOD[operation]()
    on_meta = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    with pytest.raises(ValueError, match=r"^\w+ must be a CPU tensor for native kernels, got one on meta$"):
        getattr(attention, operation)(**on_meta, implementation="native")


def test_an_unknown_implementation_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"^implementation must be one of reference, native, triton or None, got 'cuda'$"
    ):
        attention.block_digest(**_digest_arguments(), implementation="cuda")


def test_a_missing_implementation_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtk_kernels._operation.native_module", lambda: None)
    monkeypatch.setattr("dtk_kernels._operation.why_no_native_module", lambda: "the reason")
    with pytest.raises(
        NotImplementedError, match=r"^block_digest has no native implementation here: the reason$"
    ):
        attention.block_digest(**_digest_arguments(), implementation="native")
