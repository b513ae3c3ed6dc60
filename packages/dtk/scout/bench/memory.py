"""How much memory the benchmark needs, asked for before it is allocated."""

import psutil

from dtk.errors import InputError
from dtk.hardware.measure import read_buffer_bytes
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.roofline import kv_bytes

__all__ = ["check_memory", "needed_bytes", "scaling_bytes"]

# Gathered K/V stay there: torch's, llama.cpp's copy; for a while: those of torch_gather_sdpa, padded blocks.
_GATHERED_COPIES = 5
_FLOAT64_BYTES = 8
_OTHER_BYTES = 256 * 2**20
_USABLE_SHARE = 0.9


def needed_bytes(config: KernelBenchConfig) -> int:
    """Return about how many bytes the benchmark takes at its largest."""
    rows = max(_row_bytes(config, dtype) for dtype in config.dtypes)
    return max(rows, scaling_bytes(config) if config.scaling else 0) + read_buffer_bytes() + _OTHER_BYTES


def scaling_bytes(config: KernelBenchConfig) -> int:
    """Return the bytes that `--scaling` takes: the pool, and what checking one sequence of it copies."""
    tokens = -(-config.scaling_tokens // config.block_size) * config.block_size
    sequence = kv_bytes(1, config.kv_heads, tokens, config.head_dim, config.dtypes[0])
    # While the values are gathered: the keys, and of the values the blocks, their tokens in order, and those
    # without the end of the last block. Then one head's keys or values in float64, and copies of torch's
    # matrix product.
    head = tokens * config.head_dim * _FLOAT64_BYTES
    return config.batch * sequence + max(2 * sequence, sequence + 3 * head)


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
    scaling_decides = needed > needed_bytes(config.model_copy(update={"scaling": False}))
    if needed > _USABLE_SHARE * available:
        smaller = "take fewer --context-tokens, --selected-tokens, a smaller --batch or smaller --group-sizes"
        raise InputError(
            f"the benchmark needs about {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are free",
            hint="take fewer --scaling-tokens or a smaller --batch" if scaling_decides else smaller,
        )
