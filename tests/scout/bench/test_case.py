"""Scattered selections and their gathered copies, and the oracle against torch in float64."""

import pytest
import torch
import torch.nn.functional as F

from dtk.scout.bench.case import gather, make_case, make_key_values, oracle, scattered_blocks
from dtk.scout.bench.config import KernelBenchConfig

CONFIG = KernelBenchConfig(
    batch=3, kv_heads=2, head_dim=5, selected_tokens=37, context_tokens=90, block_size=16
)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_pool_holds_the_gathered_tokens_where_the_table_says(dtype: str) -> None:
    kv = make_key_values(CONFIG, dtype, torch.Generator().manual_seed(0))
    assert kv.keys.shape == (3 * 6, 2, 16, 5)
    assert kv.block_lengths.tolist() == [[[16, 16, 5]]] * 3
    for pool, gathered in ((kv.keys, kv.gathered_keys), (kv.values, kv.gathered_values)):
        for row in range(3):
            listed = pool[kv.block_table[row, 0].long()]  # [blocks, KV heads, block size, head size]
            tokens = torch.cat(list(listed), dim=1)
            assert torch.equal(tokens[:, :37], gathered[row])
            assert tokens[:, 37:].isnan().all()
        assert torch.equal(gather(pool, kv.block_table, 37), gathered)
        # Everything that is not selected would show: it is NaN.
        assert pool.isnan().sum() == pool.numel() - gathered.numel()


def test_no_block_is_selected_twice() -> None:
    table = scattered_blocks(4, 10, 10, torch.Generator().manual_seed(1))
    assert table.shape == (4, 1, 10)
    assert table.dtype == torch.int32
    assert sorted(table.flatten().tolist()) == list(range(40))
    assert table.flatten().tolist() != list(range(40))


@pytest.mark.parametrize("group_size", [1, 3])
def test_the_oracle_agrees_with_torch_in_float64(group_size: int) -> None:
    generator = torch.Generator().manual_seed(2)
    case = make_case(make_key_values(CONFIG, "fp32", generator), "fp32", group_size, generator)
    keys, values = case.kv.gathered_keys.double(), case.kv.gathered_values.double()
    expected = F.scaled_dot_product_attention(case.query.double()[:, :, None], keys, values, enable_gqa=True)
    result = oracle(case.query, case.kv.gathered_keys, case.kv.gathered_values)
    torch.testing.assert_close(result, expected[:, :, 0], rtol=1e-12, atol=1e-12)
