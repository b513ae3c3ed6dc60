"""Others' decode attention on the same data: torch's SDPA and FlashInfer's batch decode.

SDPA gets its keys and values gathered side by side, which is not timed: it is what torch does at its best.
FlashInfer is optional. It reads our pools as they are; its planning on the host is not timed.
"""

import importlib
import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F

from dtk_kernels.gpu_bench.cases import Case
from dtk_kernels.gpu_bench.problems import Attention

__all__ = ["PeerMissingError", "flashinfer_calls", "sdpa_calls"]

Call = Callable[[], object]

_WORKSPACE_BYTES = 128 * 2**20
_TENSOR_CORES_FROM = 4  # query heads a KV head, as FlashInfer advises


class PeerMissingError(Exception):
    """A peer cannot take part; the text says why."""


def sdpa_calls(case: Case, data: Attention) -> list[Callable[[], torch.Tensor]]:
    """Return torch's SDPA with grouped heads on gathered keys and values, a call for each table."""

    def call(copy: int) -> Callable[[], torch.Tensor]:
        query = data.queries[copy][:, :, None]
        keys, values = (data.gathered(pool, copy, case.tokens) for pool in (data.keys, data.values))
        return lambda: F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)[:, :, 0]

    return [call(copy) for copy in range(len(data.tables))]


def flashinfer_calls(case: Case, data: Attention) -> list[Call]:
    """Return FlashInfer's batch decode over our pools, a call for each table.

    Raises:
        PeerMissingError: FlashInfer is not installed, or does not take this case.
    """
    if importlib.util.find_spec("flashinfer") is None:
        raise PeerMissingError("flashinfer is not installed")
    if case.dtype == "fp32":
        raise PeerMissingError("flashinfer takes 16-bit keys and values only")
    try:
        workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=data.keys.device)
        calls = [_flashinfer_call(case, data, copy, workspace) for copy in range(len(data.tables))]
        calls[0]()
    except Exception as error:  # whatever a version of it raises: ours is still timed
        raise PeerMissingError(f"flashinfer: {type(error).__name__}: {error}") from error
    return calls


def _flashinfer_call(case: Case, data: Attention, copy: int, workspace: torch.Tensor) -> Call:
    flashinfer = importlib.import_module("flashinfer")
    device = data.keys.device
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace, "HND", use_tensor_cores=case.group_size >= _TENSOR_CORES_FROM
    )
    starts = torch.arange(case.batch + 1, dtype=torch.int32, device=device) * case.num_blocks
    wrapper.plan(
        starts,
        data.tables[copy].flatten(),
        data.lengths[:, 0, -1].contiguous(),
        case.num_kv_heads * case.group_size,
        case.num_kv_heads,
        case.head_dim,
        case.block_size,
        q_data_type=data.queries.dtype,
        kv_data_type=data.keys.dtype,
    )
    query = data.queries[copy]
    return lambda: wrapper.run(query, (data.keys, data.values))
