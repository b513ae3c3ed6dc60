"""How much memory the benchmark needs, asked for before it is allocated."""

import psutil

from dtk.errors import InputError
from dtk.hardware.measure import read_buffer_bytes
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.roofline import kv_bytes

__all__ = ["check_memory", "needed_bytes"]

# Gathered K/V stay there: torch's, llama.cpp's copy; for a while: those of torch_gather_sdpa, padded blocks.
_GATHERED_COPIES = 5
_OTHER_BYTES = 256 * 2**20
_USABLE_SHARE = 0.9


def needed_bytes(config: KernelBenchConfig) -> int:
    """Return about how many bytes the benchmark takes at its largest."""
    rows = max(_row_bytes(config, dtype) for dtype in config.dtypes)
    scaling = 0
    if config.scaling:
        tokens = -(-config.scaling_tokens // config.block_size) * config.block_size
        scaling = kv_bytes(config.batch, config.kv_heads, tokens, config.head_dim, config.dtypes[0])
    return max(rows, scaling) + read_buffer_bytes() + _OTHER_BYTES


def _row_bytes(config: KernelBenchConfig, dtype: str) -> int:
    def tokens_bytes(tokens: int, dtype: str = dtype) -> int:
        return kv_bytes(config.batch, config.kv_heads, tokens, config.head_dim, dtype)

    pool = tokens_bytes(config.context_blocks * config.block_size)
    gathered = tokens_bytes(config.selected_blocks * config.block_size)
    random = tokens_bytes(config.selected_tokens, "fp32")
    largest_group = max(config.group_sizes)
    repeated = gathered * largest_group if largest_group > 1 else 0
    return pool + _GATHERED_COPIES * gathered + random + repeated


def check_memory(config: KernelBenchConfig) -> None:
    """Refuse a benchmark that does not fit into the memory which is free now.

    Raises:
        InputError: If it does not.
    """
    needed, available = needed_bytes(config), psutil.virtual_memory().available
    if needed > _USABLE_SHARE * available:
        raise InputError(
            f"the benchmark needs about {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are free",
            hint="take fewer --context-tokens, --selected-tokens, a smaller --batch or smaller --group-sizes",
        )
