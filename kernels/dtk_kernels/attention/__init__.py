"""Attention over a key/value cache cut into blocks: digests, scores, selection, partial attention, merge.

Blocks live in pools `[num_pool_blocks, num_kv_heads, block_size, head_dim]` with any strides as long as
head_dim is contiguous. int32 tables list pool blocks; -1 means "no block". Partial outputs and their
log-sum-exp (natural log) are float32 and combine exactly with `merge_partials`.

Sources: block digests and scores after Quest (arXiv 2406.10774, section 3.3), the split into partial results
after FlashAttention's online softmax; both as ScoutAttention (arXiv 2603.27138, section 3) uses them. One
query token a sequence only: prefill and training are left out.

On CPU tensors what tables and ids hold is checked (ValueError). On CUDA tensors it is not: the check would
wait for the GPU.
"""

from dtk_kernels.attention.block_digest import block_digest
from dtk_kernels.attention.block_score import block_score
from dtk_kernels.attention.merge_partials import merge_partials
from dtk_kernels.attention.quantized_decode_attention import quantized_decode_attention
from dtk_kernels.attention.select_blocks import select_blocks
from dtk_kernels.attention.sparse_decode_attention import sparse_decode_attention

__all__ = [
    "block_digest",
    "block_score",
    "merge_partials",
    "quantized_decode_attention",
    "select_blocks",
    "sparse_decode_attention",
]
