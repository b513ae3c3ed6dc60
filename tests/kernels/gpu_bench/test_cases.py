"""What is timed: the paper's shapes, each once, and bytes that are those of the tensors."""

import math
from functools import partial

import pytest
import torch

from dtk_kernels.formats import FORMATS
from dtk_kernels.gpu_bench import problems
from dtk_kernels.gpu_bench.cases import CODE_BYTES, Case, cases

CPU = torch.device("cpu")


def test_the_papers_shapes_are_there_once() -> None:
    everything = cases()
    assert len({case.name for case in everything}) == len(everything)
    attention = [case for case in everything if case.operation == "sparse_decode_attention"]
    assert {case.batch for case in attention} == {1, 4, 16, 40}
    assert {case.group_size for case in attention} == {1, 4, 8}
    assert {case.block_size for case in attention} == {16, 32, 64}
    assert {case.dtype for case in attention} == {"bf16", "fp16", "fp32"}
    assert {(case.tokens, case.num_kv_heads, case.head_dim) for case in attention} == {(2048, 8, 128)}
    assert {case.operation for case in everything if case.tokens == 65536} == {
        "block_digest",
        "block_score",
        "select_blocks",
    }


def test_a_quick_run_times_some_of_them() -> None:
    quick = cases(quick=True)
    assert quick == cases()[: len(quick)]  # the most telling come first
    assert {case.operation for case in quick} == {"sparse_decode_attention", "block_score", "select_blocks"}


def test_bytes_of_attention_are_those_of_its_keys_and_values() -> None:
    case = Case("sparse_decode_attention", "fp16", 3, tokens=100, block_size=20, num_kv_heads=2, head_dim=8)
    data = problems.attention(case, 2, CPU)
    assert case.moved_bytes == (data.keys.nbytes + data.values.nbytes) // 2
    assert data.tables.flatten().sort().values.tolist() == list(range(len(data.keys)))


@pytest.mark.parametrize("kv_format", CODE_BYTES)
def test_bytes_of_quantised_attention_are_those_of_its_codes_and_scales(kv_format: str) -> None:
    case = Case(
        "quantized_decode_attention", "fp32", 2, tokens=40, block_size=20, num_kv_heads=2, head_dim=8,
        kv_format=kv_format,
    )  # fmt: skip
    assert case.name == f"quantized_decode_attention[fp32,{kv_format},b2,t40,s20,g4]"
    call = problems.problem(case, 3, CPU).ours[0]
    assert isinstance(call, partial)
    pools = call.args[1:5]
    assert 3 * case.moved_bytes == sum(pool.nbytes for pool in pools)


@pytest.mark.parametrize(("kv_format", "block_size"), [("e4m3", 8), ("mxfp4", 32), ("nvfp4", 16)])
def test_bytes_of_fake_quantise_are_its_numbers_in_and_out(kv_format: str, block_size: int) -> None:
    case = Case(
        "fake_quantize", "bf16", 2, tokens=5, block_size=block_size, num_kv_heads=3, head_dim=16,
        kv_format=kv_format,
    )  # fmt: skip
    made = problems.problem(case, 3, CPU)
    call = made.ours[0]
    assert isinstance(call, partial)
    assert call.args[0].shape == (10, 48)
    assert case.moved_bytes == 2 * call.args[0].nbytes
    assert call.keywords.get("block") == ((1, 8) if kv_format == "e4m3" else None)
    assert len(made.ours) == len(made.peers["torch_clone"]) == 3


@pytest.mark.parametrize("kv_format", CODE_BYTES)
def test_random_codes_are_finite_and_of_all_values(kv_format: str) -> None:
    codes = problems.random_codes((40, 256), kv_format, CPU)
    values = {FORMATS[kv_format].values[code] for code in unpacked(codes, kv_format)}
    finite = {value for value in FORMATS[kv_format].values if math.isfinite(value)}
    assert values == finite - ({-128.0} if kv_format == "int8" else set())


def unpacked(codes: torch.Tensor, kv_format: str) -> list[int]:
    if kv_format == "e2m1":
        return [code for both in codes.flatten().tolist() for code in (both & 15, both >> 4)]
    return codes.view(torch.uint8).flatten().tolist()


def test_a_last_block_may_be_short() -> None:
    case = Case("sparse_decode_attention", "fp32", 1, tokens=50, block_size=20, num_kv_heads=2, head_dim=8)
    data = problems.attention(case, 2, CPU)
    assert data.lengths.tolist() == [[[20, 20, 10]]]
    assert case.moved_bytes == 2 * 50 * 2 * 8 * 4
    gathered = data.gathered(data.keys, 1, case.tokens)
    assert gathered.shape == (1, 2, 50, 8)
    last = int(data.tables[1, 0, 0, 2])
    assert torch.equal(gathered[0, 1, 40:], data.keys[last, 1, :10])


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ("block_digest", 2 * 64 * 2 * 16 * 2 + 2 * 2 * 8 * 2 * 16 * 2),  # the keys, and both digests
        ("block_score", 2 * 2 * 8 * 2 * 16 * 2),
        ("select_blocks", 2 * 8 * 4),
        ("gather_blocks", 2 * 2 * 64 * 2 * 16 * 2),  # in and out
        ("merge_partials", 3 * 2 * 2 * 4 * (16 + 1) * 4),  # two in, one out
    ],
)
def test_bytes_of_other_operations(operation: str, wanted: int) -> None:
    case = Case(operation, "bf16", 2, tokens=64, block_size=8, group_size=4, num_kv_heads=2, head_dim=16)
    assert case.moved_bytes == wanted


def test_an_operation_that_is_not_timed() -> None:
    with pytest.raises(ValueError, match="got 'softmax'"):
        _ = Case("softmax", "bf16", 1).moved_bytes


@pytest.mark.parametrize(("moved", "wanted"), [(10, 24), (100, 20), (333, 7), (10**6, 2)])
def test_data_leaves_the_cache_behind(moved: int, wanted: int) -> None:
    assert problems.copies_for(moved, 500) == wanted
    assert wanted == 24 or wanted * moved >= 4 * 500
