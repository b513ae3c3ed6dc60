"""Checks of ScoutAttention (arXiv 2603.27138) that need no model: sizes, loads, and the merge of partials.

Left out: what needs a GPU (throughput, idle share) or data that cannot be had offline (LongBench).
"""

from typing import TYPE_CHECKING

from dtk.repro.checks import Observed, Plot, RunContext, Series
from dtk.repro.tolerance import NUMERIC_TOLERANCES

if TYPE_CHECKING:
    import torch

__all__ = ["cpu_load", "digest_memory", "kv_bytes", "merge_equals_softmax", "recall_load"]


def kv_bytes(
    context: RunContext,
    *,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    bytes_per_element: int,
    context_tokens: int,
) -> Observed:
    """Bytes of K and V for one token in one layer, and of one whole request (paper section 1)."""
    token_layer_bytes = 2 * num_kv_heads * head_dim * bytes_per_element
    return Observed(
        value={
            "one token in one layer": token_layer_bytes,
            "one request": token_layer_bytes * num_layers * context_tokens,
        },
        basis="analytic",
        details={"formula": "2 (K and V) x KV heads x head size x bytes per element (x layers x tokens)"},
    )


def cpu_load(
    context: RunContext,
    *,
    cpu_ratio: float,
    budget_tokens: int,
    token_layer_bytes: int,
    batch: int,
    host_bytes_per_s: float,
    link_bytes_per_s: float,
    layer_time_s: float,
) -> Observed:
    """K and V that the CPU attends to in one layer, and why they are not copied over the link instead."""
    full_bytes = budget_tokens * token_layer_bytes * batch
    load_bytes = cpu_ratio * full_bytes
    host_s, link_s = load_bytes / host_bytes_per_s, load_bytes / link_bytes_per_s
    ratios = tuple(percent / 100 for percent in range(0, 41, 2))
    speeds = {"CPU attends in place": host_bytes_per_s, "copy over the link": link_bytes_per_s}
    plot = Plot(
        title="Time for the missing blocks of one layer",
        x_label="CPU ratio (share of the budget that is not resident)",
        y_label="time a layer (ms)",
        series=tuple(
            Series(
                name=name, x=ratios, y=tuple(1e3 * r * full_bytes / speed for r in ratios), basis="analytic"
            )
            for name, speed in speeds.items()
        ),
        lines={"one layer on the GPU (paper)": 1e3 * layer_time_s},
    )
    return Observed(
        value={"load MB": load_bytes / 1e6, "CPU ms": 1e3 * host_s, "link ms": 1e3 * link_s},
        basis="analytic",
        details={
            "CPU time as a share of the layer": host_s / layer_time_s,
            "link time as a share of the layer": link_s / layer_time_s,
            "CPU ratio at which the CPU fills the layer": layer_time_s * host_bytes_per_s / full_bytes,
        },
        plots=(plot,),
    )


def recall_load(
    context: RunContext,
    *,
    beta: float,
    budget_tokens: int,
    block_size: int,
    token_layer_bytes: int,
    batch: int,
    num_layers: int,
    mean_interval_steps: float,
    link_bytes_per_s: float,
    window_s: float,
) -> Observed:
    """Blocks that recall copies back in one decode step, and the time that this takes on the link."""
    blocks = round(beta * budget_tokens / block_size)
    step_bytes = blocks * block_size * token_layer_bytes * batch * num_layers / mean_interval_steps
    step_s = step_bytes / link_bytes_per_s
    return Observed(
        value={"load GB": step_bytes / 1e9, "link ms": 1e3 * step_s},
        basis="analytic",
        details={
            "blocks a layer and recall": blocks,
            "layers recalled in one step, on average": num_layers / mean_interval_steps,
            "link time as a share of the window": step_s / window_s,
        },
    )


def digest_memory(
    context: RunContext,
    *,
    block_sizes: list[int],
    num_kv_heads: int,
    head_dim: int,
    num_blocks: int,
) -> Observed:
    """Bytes of the digests that the kernel really makes, as a share of the bytes of K and V (bf16)."""
    import torch

    from dtk_kernels.attention import block_digest

    generator = torch.Generator().manual_seed(context.torch_seed("digest_memory"))
    shares = {}
    for block_size in block_sizes:
        shape = (num_blocks, num_kv_heads, block_size, head_dim)
        keys = torch.randn(shape, generator=generator).to(torch.bfloat16)
        digests = block_digest(keys, torch.full((num_blocks,), block_size, dtype=torch.int32))
        # V has the size of K.
        shares[f"block {block_size}"] = sum(digest.nbytes for digest in digests) / (2 * keys.nbytes)
    plot = Plot(
        title="Memory of the digests",
        x_label="block size (tokens)",
        y_label="share of the KV cache",
        series=(
            Series(name="digests", x=tuple(shares), y=tuple(shares.values()), style="bars", basis="measured"),
        ),
    )
    return Observed(value=shares, basis="measured", plots=(plot,))


def merge_equals_softmax(
    context: RunContext,
    *,
    num_query_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    num_blocks: int,
    key_scales: list[float],
    num_seeds: int,
) -> Observed:
    """Attend to a random split of the blocks in two parts, merge, and compare with one softmax in fp64.

    Larger key scales pull the two parts' log-sum-exp apart, up to where one part must vanish. Splits that
    leave one part empty are among them. The value is the largest difference over seeds, scales and splits,
    divided by the largest score where that exceeds one, for fp32 scores are themselves off in proportion.
    """
    import torch

    errors: dict[float, float] = {}
    worst_lse = 0.0
    for scale in key_scales:
        errors[scale] = 0.0
        for seed in range(num_seeds):
            context.progress("merge", seed, num_seeds)
            generator = torch.Generator().manual_seed(context.torch_seed(f"merge {scale} {seed}"))
            query = torch.randn(1, num_query_heads, head_dim, generator=generator)
            shape = (num_blocks, num_kv_heads, block_size, head_dim)
            keys = scale * torch.randn(shape, generator=generator)
            values = torch.randn(shape, generator=generator)
            first_part = torch.randperm(num_blocks, generator=generator)[: seed % (num_blocks + 1)]
            output_error, lse_error = _merge_error(query, keys, values, first_part)
            errors[scale] = max(errors[scale], output_error)
            worst_lse = max(worst_lse, lse_error)
    plot = Plot(
        title="Largest difference of the merged output from one softmax",
        x_label="scale of the keys",
        y_label="largest difference / largest score",
        lines={"allowed": NUMERIC_TOLERANCES["operation", "fp32"]},
        x_scale="log",
        y_scale="log",
        series=(
            Series(
                name="output", x=tuple(errors), y=tuple(errors.values()), style="points", basis="measured"
            ),
        ),
    )
    value = {"output": max(errors.values()), "log-sum-exp": worst_lse}
    return Observed(
        value=value, basis="measured", details={"splits": num_seeds * len(key_scales)}, plots=(plot,)
    )


def _merge_error(
    query: "torch.Tensor", keys: "torch.Tensor", values: "torch.Tensor", first_part: "torch.Tensor"
) -> tuple[float, float]:
    """Return the largest differences of the output and of the log-sum-exp, in units of the largest score."""
    import torch

    from dtk_kernels.attention import merge_partials, sparse_decode_attention

    num_blocks, num_kv_heads, block_size, head_dim = keys.shape
    in_first = torch.zeros(num_blocks, dtype=torch.bool)
    in_first[first_part] = True
    blocks = torch.arange(num_blocks, dtype=torch.int32)
    parts = []
    for chosen in (in_first, ~in_first):
        table = torch.where(chosen, blocks, -1).reshape(1, 1, num_blocks)
        lengths = torch.full_like(table, block_size)
        parts.append(sparse_decode_attention(query, keys, values, table, lengths))
    output, lse = merge_partials(torch.stack([o for o, _ in parts]), torch.stack([part for _, part in parts]))

    heads_per_group = query.shape[1] // num_kv_heads
    all_keys, all_values = (
        pool.double()
        .transpose(0, 1)
        .reshape(num_kv_heads, -1, head_dim)
        .repeat_interleave(heads_per_group, 0)
        for pool in (keys, values)
    )
    scores = torch.einsum("hd,htd->ht", query[0].double(), all_keys) / head_dim**0.5
    want_output = torch.einsum("ht,htd->hd", scores.softmax(-1), all_values)
    want_lse = scores.logsumexp(-1)
    unit = max(1.0, float(scores.abs().max()))
    return (
        float((output[0] - want_output).abs().max()) / unit,
        float((lse[0] - want_lse).abs().max()) / unit,
    )
