"""Sparse decode attention against torch's own dense attention."""

import torch

from dtk_kernels.attention import sparse_decode_attention


def test_listing_every_block_is_dense_attention() -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 6, 16, generator=generator)
    keys = torch.randn(5, 3, 4, 16, generator=generator)
    values = torch.randn(5, 3, 4, 16, generator=generator)
    table = torch.tensor([[[0, 2, -1, 4]]], dtype=torch.int32)
    lengths = torch.tensor([[[4, 4, 4, 3]]], dtype=torch.int32)
    output, _ = sparse_decode_attention(query, keys, values, table, lengths, implementation="reference")
    listed_keys = torch.cat([keys[0], keys[2], keys[4, :, :3]], dim=1)[None]
    listed_values = torch.cat([values[0], values[2], values[4, :, :3]], dim=1)[None]
    expected = torch.nn.functional.scaled_dot_product_attention(
        query[:, :, None], listed_keys, listed_values, enable_gqa=True
    )[:, :, 0]
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)
