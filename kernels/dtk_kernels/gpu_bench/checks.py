"""Values first: every Triton kernel against float64, in bf16, fp16 and fp32, on lists with gaps.

Sums are compared with `answers`; selections, moves and quantisers must match bit for bit. What no list names
is NaN, so that a read too far shows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch

from dtk_kernels import attention, kv
from dtk_kernels.attention._types import HeadReduction
from dtk_kernels.attention.select_blocks.reference import select_blocks as reference_select_blocks
from dtk_kernels.formats import FORMATS
from dtk_kernels.gpu_bench import answers
from dtk_kernels.gpu_bench.cases import CODE_BYTES
from dtk_kernels.gpu_bench.problems import DTYPES, random_codes
from dtk_kernels.gpu_bench.quantisers import Results, bits_of, quantiser_results
from dtk_kernels.quant import unpack

__all__ = ["ON_A_GPU", "Check", "Sizes", "run_checks"]

# Largest |got - wanted| / (1 + |wanted|). Softmax weights keep two terms of a 16-bit dtype (2**-17 in bf16);
# fp32 goes through three products of TF32 terms (2**-21) and sums of some thousand numbers.
_ATTENTION_TOLERANCE = {"bf16": 1e-4, "fp16": 3e-5, "fp32": 3e-5}
_QUANTIZED_TOLERANCE = 3e-5  # codes are exact; query and weights keep 22 bits
_SUM_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Check:
    """How one operation at one shape compares with the right answer.

    Attributes:
        operation: name of the public function.
        detail: dtype and shape.
        ok: whether it is right.
        error: largest |got - wanted| / (1 + |wanted|); infinite where one is not finite and the other is.
        tolerance: what error is allowed; 0 means equal.
    """

    operation: str
    detail: str
    ok: bool
    error: float
    tolerance: float


@dataclass(frozen=True)
class Sizes:
    """Shapes that are checked; each attention shape is (head_dim, block_size, group_size)."""

    dtypes: Sequence[str]
    attention: Sequence[tuple[int, int, int]]
    batch: int = 3
    num_kv_heads: int = 8
    num_blocks: int = 40


ON_A_GPU = Sizes(
    dtypes=("bf16", "fp16", "fp32"),
    attention=(
        *((128, block_size, group_size) for block_size in (16, 32, 64) for group_size in (1, 4, 8)),
        *((64, 32, 4), (256, 32, 4), (80, 24, 3), (128, 32, 40), (128, 1, 4)),
    ),
)
"""Every tile shape that is timed, and some odd ones."""


def run_checks(device: torch.device, sizes: Sizes = ON_A_GPU) -> Iterator[Check]:
    """Check every operation and yield how it compares; the same numbers every time.

    A kernel that does not even run is wrong, with the reason as detail, and the next one is tried.
    """
    source = torch.Generator().manual_seed(0)
    for operation, run in _planned(device, sizes, source):
        try:
            yield run()
        except Exception as error:  # noqa: BLE001 - whatever it raises is the finding
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            yield Check(operation, reason, ok=False, error=float("inf"), tolerance=0.0)


def _planned(
    device: torch.device, sizes: Sizes, source: torch.Generator
) -> Iterator[tuple[str, Callable[[], Check]]]:
    for dtype in sizes.dtypes:
        for shape in sizes.attention:
            yield "sparse_decode_attention", partial(_attention, device, sizes, source, dtype, *shape)
        for kv_format in CODE_BYTES:
            for num_scales in (1, 4):
                yield (
                    "quantized_decode_attention",
                    partial(_quantized, device, sizes, source, dtype, kv_format, num_scales),
                )
        yield "block_digest", partial(_digest, device, sizes, source, dtype)
        for reduction in get_args(HeadReduction):
            yield "block_score", partial(_score, device, sizes, source, dtype, reduction)
        for operation in ("gather_blocks", "scatter_blocks_", "copy_blocks_"):
            yield operation, partial(_move, device, sizes, source, dtype, operation)
        shape = sizes.batch, sizes.num_blocks, 40 * sizes.num_blocks
        for operation, detail, results in quantiser_results(DTYPES[dtype], shape, source):
            yield (
                operation,
                partial(_quantiser, device, operation, ", ".join(filter(None, (dtype, detail))), results),
            )
    for num_columns in (sizes.num_blocks, 50 * sizes.num_blocks):
        yield "select_blocks", partial(_select, device, sizes, source, num_columns)
    for num_partials in (2, 40):
        yield "merge_partials", partial(_merge, device, sizes, source, num_partials)


def _attention(
    device: torch.device,
    sizes: Sizes,
    source: torch.Generator,
    dtype: str,
    head_dim: int,
    block_size: int,
    group_size: int,
) -> Check:
    num_pool_blocks = 2 * sizes.num_blocks
    table = _integers(-1, num_pool_blocks, (sizes.batch, 1, sizes.num_blocks), source)
    lengths = _integers(0, block_size + 1, table.shape, source)
    listed = torch.zeros(num_pool_blocks, block_size, dtype=torch.bool)
    for block, length in zip(table.flatten().tolist(), lengths.flatten().tolist(), strict=True):
        listed[block, : length if block >= 0 else 0] = True
    pool_shape = num_pool_blocks, sizes.num_kv_heads, block_size, head_dim
    keys, values = (
        _random(pool_shape, dtype, source).masked_fill(~listed[:, None, :, None], float("nan"))
        for _ in range(2)
    )
    query = _random((sizes.batch, sizes.num_kv_heads * group_size, head_dim), dtype, source)
    arguments = query, keys, values, table, lengths
    got = attention.sparse_decode_attention(*_on(device, *arguments), implementation="triton")
    detail = f"{dtype}, head_dim {head_dim}, block_size {block_size}, group_size {group_size}"
    wanted = answers.exact_attention(*arguments)
    return _compare("sparse_decode_attention", detail, got, wanted, _ATTENTION_TOLERANCE[dtype])


def _quantized(
    device: torch.device,
    sizes: Sizes,
    source: torch.Generator,
    dtype: str,
    kv_format: str,
    num_scales: int,
) -> Check:
    """K/V as codes; what they stand for is looked up in the table of the format's values."""
    head_dim, block_size, group_size = sizes.attention[0]
    table = _integers(-1, 2 * sizes.num_blocks, (sizes.batch, 1, sizes.num_blocks), source)
    lengths = _integers(0, block_size + 1, table.shape, source)
    pool_shape = 2 * sizes.num_blocks, sizes.num_kv_heads, block_size, head_dim
    code_values = torch.tensor(FORMATS[kv_format].values, dtype=torch.double)
    codes, scales, dense = [], [], []
    for _ in range(2):
        codes.append(random_codes(pool_shape, kv_format, torch.device("cpu"), source))
        scales.append(torch.rand(*pool_shape[:3], num_scales, generator=source) / FORMATS[kv_format].max)
        whole = unpack(codes[-1], head_dim, implementation="reference") if kv_format == "e2m1" else codes[-1]
        factors = scales[-1].double().repeat_interleave(head_dim // num_scales, dim=-1)
        dense.append(code_values[whole.long() % len(code_values)] * factors)
    query = _random((sizes.batch, sizes.num_kv_heads * group_size, head_dim), dtype, source)
    got = attention.quantized_decode_attention(
        *_on(device, query, *codes, *scales, table, lengths), format=kv_format, implementation="triton"
    )
    detail = f"{dtype}, {kv_format}, scales {num_scales}, head_dim {head_dim}, group_size {group_size}"
    wanted = answers.exact_attention(query, dense[0], dense[1], table, lengths)
    return _compare("quantized_decode_attention", detail, got, wanted, _QUANTIZED_TOLERANCE)


def _digest(device: torch.device, sizes: Sizes, source: torch.Generator, dtype: str) -> Check:
    keys = _random((sizes.num_blocks, sizes.num_kv_heads, 32, 128), dtype, source)
    lengths = _integers(0, 33, (sizes.num_blocks,), source)
    wanted = answers.exact_digest(keys, lengths)
    keys.masked_fill_((torch.arange(32) >= lengths[:, None])[:, None, :, None], float("nan"))
    got = attention.block_digest(*_on(device, keys, lengths), implementation="triton")
    return _compare("block_digest", dtype, got, wanted, 0.0)


def _score(
    device: torch.device, sizes: Sizes, source: torch.Generator, dtype: str, reduction: HeadReduction
) -> Check:
    pair = _random((2, 2 * sizes.num_blocks, sizes.num_kv_heads, 128), dtype, source)
    query = _random((sizes.batch, sizes.num_kv_heads * 4, 128), dtype, source)
    table = _integers(-1, 2 * sizes.num_blocks, (sizes.batch, sizes.num_blocks), source)
    arguments = query, pair.amin(dim=0), pair.amax(dim=0), table
    got = attention.block_score(*_on(device, *arguments), head_reduction=reduction, implementation="triton")
    wanted = answers.exact_scores(*arguments, reduction)
    return _compare("block_score", f"{dtype}, {reduction}", (got,), (wanted,), _SUM_TOLERANCE)


def _select(device: torch.device, sizes: Sizes, source: torch.Generator, num_columns: int) -> Check:
    scores = torch.randn(sizes.batch, 2, num_columns, generator=source).round(decimals=2)  # many ties
    scores[:, :, ::7] = float("-inf")
    forced = torch.zeros(sizes.batch, num_columns, dtype=torch.bool)
    forced[:, [0, num_columns - 1]] = True
    count = min(64, num_columns)
    got = attention.select_blocks(scores.to(device), count, forced=forced.to(device), implementation="triton")
    wanted = reference_select_blocks(scores, count, forced=forced)
    return _compare("select_blocks", f"{num_columns} columns", (got,), (wanted,), 0.0)


def _merge(device: torch.device, sizes: Sizes, source: torch.Generator, num_partials: int) -> Check:
    outputs = torch.randn(num_partials, sizes.batch, 32, 128, generator=source)
    lses = torch.randn(outputs.shape[:-1], generator=source) * 30
    lses[:, 0, 0], lses[0, 1] = float("-inf"), float("-inf")
    outputs.masked_fill_((lses == float("-inf"))[..., None], float("nan"))
    got = attention.merge_partials(*_on(device, outputs, lses), implementation="triton")
    wanted = answers.exact_merge(outputs, lses)
    return _compare("merge_partials", f"{num_partials} partials", got, wanted, _SUM_TOLERANCE)


def _move(device: torch.device, sizes: Sizes, source: torch.Generator, dtype: str, operation: str) -> Check:
    """Gather, scatter or copy of random bits: NaN of every kind is among them."""
    bits = _integers(-(2**15), 2**15, (4 * sizes.num_blocks, 2, 16, 128), source).to(torch.int16)
    ids = torch.randperm(len(bits), generator=source)[: sizes.num_blocks].int()
    ids[::5] = -1
    present, places = ids >= 0, torch.arange(sizes.num_blocks, dtype=torch.int32)
    pool, ids_there, places_there = _on(device, bits.view(DTYPES[dtype]), ids, places)
    target, wanted = torch.zeros_like(pool), torch.zeros_like(bits)
    wanted[: len(ids)] = bits[ids.clamp(min=0).long()] * present[:, None, None, None]
    if operation == "gather_blocks":
        target[: len(ids)] = kv.gather_blocks(pool, ids_there, implementation="triton")
    elif operation == "copy_blocks_":
        kv.copy_blocks_(pool, ids_there, target, places_there, implementation="triton")
    else:
        kv.scatter_blocks_(target, ids_there, pool[: len(ids)], implementation="triton")
        wanted = torch.zeros_like(bits)
        wanted[ids[present].long()] = bits[: len(ids)][present]
    return _compare(operation, dtype, (target.view(torch.int16),), (wanted,), 0.0)


def _quantiser(device: torch.device, operation: str, detail: str, results: Results) -> Check:
    got = [bits_of(each.cpu()) for each in results(device, "triton")]
    wanted = [bits_of(each) for each in results(torch.device("cpu"), "reference")]
    return _compare(operation, detail, got, wanted, 0.0)


def _random(shape: Sequence[int], dtype: str, source: torch.Generator) -> torch.Tensor:
    return torch.randn(*shape, generator=source).to(DTYPES[dtype])


def _integers(low: int, end: int, shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    return torch.randint(low, end, tuple(shape), generator=source, dtype=torch.int32)


def _on(device: torch.device, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.to(device) for tensor in tensors]


def _compare(
    operation: str,
    detail: str,
    got: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor],
    tolerance: float,
) -> Check:
    error = max(_error(*pair) for pair in zip(got, wanted, strict=True))
    return Check(operation, detail, error <= tolerance, error, tolerance)


def _error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    got, wanted = got.cpu().double(), wanted.double()
    if got.shape != wanted.shape:
        return float("inf")
    # Equal infinities are no error, and their difference is NaN; every other NaN is one.
    errors = ((got - wanted).abs() / (1 + wanted.abs())).masked_fill(got == wanted, 0.0)
    return float(errors.nan_to_num(nan=float("inf")).max()) if errors.numel() else 0.0
