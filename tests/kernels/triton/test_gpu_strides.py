"""Strides and offsets beyond 2**31 elements, for which only a GPU's memory is large enough."""

import pytest
import torch

from dtk_kernels.attention.block_digest.reference import block_digest as reference_block_digest
from dtk_kernels.attention.block_digest.triton_kernel import block_digest
from dtk_kernels.attention.block_score.reference import block_score as reference_block_score
from dtk_kernels.attention.block_score.triton_kernel import block_score
from dtk_kernels.attention.sparse_decode_attention.triton_kernel import sparse_decode_attention
from dtk_kernels.kv.gather_blocks.triton_kernel import gather_blocks
from tests.kernels.triton import inputs
from tests.kernels.triton.attention_oracle import Problem, expected, make_problem

pytestmark = pytest.mark.gpu

FAR = 2**31 + 64  # elements
RTOL, ATOL = 1e-4, 1e-4


def far_apart(pool: torch.Tensor, dim: int, distance: int) -> torch.Tensor:
    """Return a copy on the GPU whose neighbours along one dim lie so many elements apart; skip if none fit.

    The other dims stay dense. What lies between is not initialised.
    """
    rest = [size for axis, size in enumerate(pool.shape) if axis != dim]
    strides = list(torch.empty(rest, device="meta").stride())
    strides.insert(dim, distance)
    num_elements = (pool.shape[dim] - 1) * distance + pool[:, :1].numel() * pool.shape[1]
    free_bytes, _ = torch.cuda.mem_get_info()
    if num_elements * pool.element_size() > 0.9 * free_bytes:
        pytest.skip(f"needs {num_elements * pool.element_size() / 2**30:.0f} GiB of free GPU memory")
    far = torch.empty(num_elements, dtype=pool.dtype, device="cuda").as_strided(pool.shape, strides)
    return far.copy_(pool)


@pytest.fixture(autouse=True)
def _free_memory() -> None:
    torch.cuda.empty_cache()


# Blocks far apart, heads far apart, and tokens that are near, but whose offsets within a block are not.
@pytest.mark.parametrize(("dim", "distance"), [(0, FAR), (1, FAR), (2, FAR // 24)])
def test_attention(dim: int, distance: int) -> None:
    near = make_problem(
        num_kv_heads=2, block_size=32, head_dim=128, num_pool_blocks=2, num_blocks=2, dtype=torch.bfloat16
    )
    near.block_table.copy_(torch.tensor([[[1, 0]]]))
    near.block_lengths.fill_(32)
    for pool in (near.keys, near.values):
        pool.copy_(inputs.randn(pool.shape, inputs.generator(dim), pool.dtype))
    keys = far_apart(near.keys, dim, distance)
    far = Problem(near.query, keys, near.values.cuda(), near.block_table, near.block_lengths, None)
    output, lse = sparse_decode_attention(*(tensor.cuda() for tensor in far.tensors()))
    wanted_output, wanted_lse = expected(near)
    torch.testing.assert_close(output.cpu().double(), wanted_output, rtol=RTOL, atol=ATOL)
    torch.testing.assert_close(lse.cpu().double(), wanted_lse, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize(("dim", "distance"), [(0, FAR), (1, FAR), (2, FAR // 24)])
def test_digest_and_gather(dim: int, distance: int) -> None:
    near = inputs.randn((2, 2, 32, 128), inputs.generator(dim), torch.bfloat16)
    far = far_apart(near, dim, distance)
    lengths = torch.tensor([32, 31], dtype=torch.int32)
    digests = block_digest(far, lengths.cuda())
    assert all(map(torch.equal, (digest.cpu() for digest in digests), reference_block_digest(near, lengths)))
    ids = torch.tensor([1, -1, 0], dtype=torch.int32, device="cuda")
    assert torch.equal(gather_blocks(far, ids)[[2, 0]].cpu(), near)


@pytest.mark.parametrize("dim", [0, 1])
def test_score(dim: int) -> None:
    near = inputs.randn((2, 2, 128), inputs.generator(dim), torch.bfloat16)
    query = inputs.randn((1, 4, 128), inputs.generator(2), torch.bfloat16)
    table = torch.tensor([[1, 0, -1]], dtype=torch.int32)
    far = far_apart(near, dim, FAR)
    scores = block_score(query.cuda(), far, far, table.cuda())
    wanted = reference_block_score(query, near, near, table)
    torch.testing.assert_close(scores.cpu(), wanted, rtol=RTOL, atol=1e-2)
