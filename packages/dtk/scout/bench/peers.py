"""The contenders: our kernel, and what torch offers for decode attention over the same selected tokens.

Torch's own get K and V already gathered into contiguous tensors, and the gathering is not timed: it favours
torch. `torch_gather_sdpa` does gather, as an engine without a block-sparse kernel would have to.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from dtk.scout.bench.case import Case, gather
from dtk.scout.bench.contender import OUR_TOLERANCE, Contender, peer_tolerance
from dtk.scout.bench.llama_cpp import LlamaCppAttention
from dtk.scout.bench.ours import OurKernel
from dtk_kernels.attention import sparse_decode_attention

__all__ = ["LLAMA_CPP", "OURS", "TORCH_BEST_OF", "llama_cpp_contender", "our_contenders", "torch_contenders"]

OURS = "dtk"
LLAMA_CPP = "llama_cpp"
TORCH_BEST_OF = ("torch_sdpa_gqa", "torch_sdpa_packed", "torch_sdpa_repeated", "torch_bmm")
"""The contenders that count as torch's best: all with K/V gathered beforehand."""


# With V in fp16, llama.cpp sums in fp16 too.
_LLAMA_CPP_TOLERANCE = 5e-2


def our_contenders(case: Case, kernel: OurKernel) -> list[Contender]:
    """Return our kernel on its threads, and in the caller's own where that is a fair comparison."""
    kv = case.kv
    arguments = (case.query, kv.keys, kv.values, kv.block_table, kv.block_lengths)
    contenders = [Contender(OURS, lambda: kernel(*arguments), OUR_TOLERANCE)]
    if kernel.threads == 1:
        contenders.append(
            Contender(
                "dtk_inline",
                lambda: sparse_decode_attention(*arguments, implementation="native")[0],
                OUR_TOLERANCE,
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
    tolerance = peer_tolerance(case.dtype)

    def contender(name: str, run: Callable[[], Tensor]) -> Contender:
        return Contender(name, lambda: run().reshape(query.shape), tolerance)

    return [contender(name, run) for name, run in runs.items()]


def llama_cpp_contender(case: Case, threads: int, folder: Path, stack: ExitStack) -> Contender:
    """Return llama.cpp's way; the stack frees what it holds.

    Raises:
        LlamaCppUnavailableError: Its libraries in `folder` cannot be used.
    """
    attention = stack.enter_context(LlamaCppAttention(case, threads, folder))
    return Contender(LLAMA_CPP, attention, _LLAMA_CPP_TOLERANCE)


def _bmm(packed: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    scores = (packed @ keys.transpose(-1, -2)).float() * packed.shape[-1] ** -0.5
    weights: Tensor = scores.softmax(dim=-1).to(values.dtype)
    return weights @ values


def _gather_sdpa(case: Case, packed: Tensor) -> Tensor:
    num_tokens = case.kv.gathered_keys.shape[2]
    keys, values = (gather(pool, case.kv.block_table, num_tokens) for pool in (case.kv.keys, case.kv.values))
    return F.scaled_dot_product_attention(packed, keys, values)
