"""The contenders: our kernel, and what torch offers for decode attention over the same selected tokens.

Torch's own get K and V already gathered into contiguous tensors, and the gathering is not timed: it favours
torch. `torch_gather_sdpa` does gather, as an engine without a block-sparse kernel would have to.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dtk.scout.bench.case import Case, gather
from dtk_kernels.attention import sparse_decode_attention
from dtk_kernels.workers import Workers

__all__ = ["OURS", "TORCH_BEST_OF", "Contender", "our_contenders", "relative_error", "torch_contenders"]

OURS = "dtk"
TORCH_BEST_OF = ("torch_sdpa_gqa", "torch_sdpa_packed", "torch_sdpa_repeated", "torch_bmm")
"""The contenders that count as torch's best: all with K/V gathered beforehand."""

# Largest error of an output, relative to the largest output. Ours sums in fp32 whatever K/V are stored in.
_OUR_TOLERANCE = 1e-4
_PEER_TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2}


@dataclass(frozen=True)
class Contender:
    """One way to compute the case.

    Attributes:
        name: A short name.
        run: Computes it once, and returns [batch, query heads, head size].
        tolerance: Largest error of an output that passes, relative to the largest output.
    """

    name: str
    run: Callable[[], Tensor]
    tolerance: float


def our_contenders(case: Case, workers: Workers) -> list[Contender]:
    """Return our kernel on the workers, and in the caller's own thread where that is a fair comparison."""
    kv = case.kv
    arguments = (case.query, kv.keys, kv.values, kv.block_table, kv.block_lengths)
    contenders = [
        Contender(OURS, lambda: workers.submit_sparse_decode_attention(*arguments).wait()[0], _OUR_TOLERANCE)
    ]
    if workers.num_threads == 1:
        contenders.append(
            Contender(
                "dtk_inline",
                lambda: sparse_decode_attention(*arguments, implementation="native")[0],
                _OUR_TOLERANCE,
            )
        )
    return contenders


def torch_contenders(case: Case) -> list[Contender]:
    """Return torch's ways; they run on the threads that torch has been given."""
    query, keys, values = case.query, case.kv.gathered_keys, case.kv.gathered_values
    batch, kv_heads, _, head_dim = keys.shape
    packed = query.view(batch, kv_heads, case.group_size, head_dim)
    runs: dict[str, Callable[[], Tensor]] = {
        "torch_sdpa_packed": lambda: F.scaled_dot_product_attention(packed, keys, values),
        "torch_bmm": lambda: _bmm(packed, keys, values),
        "torch_gather_sdpa": lambda: _gather_sdpa(case, packed),
    }
    if case.group_size > 1:
        heads = query[:, :, None]
        all_keys, all_values = (one.repeat_interleave(case.group_size, dim=1) for one in (keys, values))
        runs |= {
            "torch_sdpa_gqa": lambda: F.scaled_dot_product_attention(heads, keys, values, enable_gqa=True),
            "torch_sdpa_repeated": lambda: F.scaled_dot_product_attention(heads, all_keys, all_values),
        }
    tolerance = _PEER_TOLERANCES[case.dtype]

    def contender(name: str, run: Callable[[], Tensor]) -> Contender:
        return Contender(name, lambda: run().reshape(query.shape), tolerance)

    return [contender(name, run) for name, run in runs.items()]


def _bmm(packed: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    scores = (packed @ keys.transpose(-1, -2)).float() * packed.shape[-1] ** -0.5
    weights: Tensor = scores.softmax(dim=-1).to(values.dtype)
    return weights @ values


def _gather_sdpa(case: Case, packed: Tensor) -> Tensor:
    num_tokens = case.kv.gathered_keys.shape[2]
    keys, values = (gather(pool, case.kv.block_table, num_tokens) for pool in (case.kv.keys, case.kv.values))
    return F.scaled_dot_product_attention(packed, keys, values)


def relative_error(output: Tensor, expected: Tensor) -> float:
    """Return the largest error over the largest expected value; NaN in the output gives infinity."""
    error = (output.double() - expected).abs().max() / expected.abs().max()
    return float(torch.nan_to_num(error, nan=torch.inf))
