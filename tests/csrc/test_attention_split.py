"""Long lists of blocks are attended to in chunks of 512 tokens, each list's chunks merged in order."""

import pytest
import torch

from dtk_kernels.attention import merge_partials, sparse_decode_attention
from dtk_kernels.workers import Workers
from tests.kernels.attention.oracles import dense_attention

pytestmark = pytest.mark.native
CHUNK_TOKENS = 512
Arguments = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def problem(block_size: int, num_blocks: int, *, num_groups: int = 1) -> Arguments:
    """Two sequences, three KV heads, six query heads; some columns empty, some blocks partial."""
    generator = torch.Generator().manual_seed(block_size)
    pool_shape = (7, 3, block_size, 20)
    table = torch.randint(-1, 7, (2, num_groups, num_blocks), generator=generator, dtype=torch.int32)
    lengths = torch.randint(0, block_size + 1, table.shape, generator=generator, dtype=torch.int32)
    query = torch.randn((2, 6, 20), generator=generator)
    keys, values = (torch.randn(pool_shape, generator=generator).half() for _ in range(2))
    return query, keys, values, table, lengths


def attend(arguments: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    return sparse_decode_attention(*arguments, implementation="native")


@pytest.mark.parametrize(
    ("block_size", "num_blocks"), [(16, 32), (16, 33), (16, 100), (48, 21), (512, 3), (700, 3), (1, 1537)]
)
@pytest.mark.parametrize("num_groups", [1, 3])
def test_a_list_is_the_merge_of_its_chunks(block_size: int, num_blocks: int, num_groups: int) -> None:
    query, keys, values, table, lengths = problem(block_size, num_blocks, num_groups=num_groups)
    whole = attend((query, keys, values, table, lengths))
    chunk = max(1, CHUNK_TOKENS // block_size)
    parts = [
        attend((query, keys, values, table[..., first : first + chunk], lengths[..., first : first + chunk]))
        for first in range(0, num_blocks, chunk)
    ]
    merged = merge_partials(
        *(torch.stack(tensors) for tensors in zip(*parts, strict=True)), implementation="native"
    )
    torch.testing.assert_close(whole, merged, rtol=0, atol=0)
    expected = dense_attention(query, keys, values, table, lengths)
    torch.testing.assert_close(tuple(x.double() for x in whole), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_threads", [1, 2, 3, 5])
def test_workers_give_the_same_bits(num_threads: int) -> None:
    cases = [problem(block_size, num_blocks) for block_size, num_blocks in ((16, 33), (48, 70), (700, 5))]
    expected = [attend(case) for case in cases]
    with Workers(num_threads) as workers:
        for _ in range(20):  # threads finish a list's chunks in another order each time
            jobs = [workers.submit_sparse_decode_attention(*case) for case in cases]
            for job, result in zip(jobs, expected, strict=True):
                torch.testing.assert_close(job.wait(), result, rtol=0, atol=0)


@pytest.mark.parametrize("column", [0, 40, 99])
def test_a_wrong_entry_shows_whichever_chunk_it_is_in(column: int) -> None:
    query, keys, values, table, lengths = problem(16, 100)
    table[1, 0, column] = -2
    with pytest.raises(ValueError, match=r"^block_table holds -2; ids are"):
        attend((query, keys, values, table, lengths))
    table[1, 0, column] = 0
    lengths[1, 0, column] = 17
    with pytest.raises(ValueError, match=r"^block_lengths holds 17; lengths must be in 0..16"):
        attend((query, keys, values, table, lengths))
    with (
        Workers(2) as workers,
        pytest.raises(ValueError, match=r"^block_lengths holds 17; lengths must be in 0..16"),
    ):
        workers.submit_sparse_decode_attention(query, keys, values, table, lengths).wait()
