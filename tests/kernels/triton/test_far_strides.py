"""Strides and offsets beyond 2**31 elements: in the interpreter in memory that is not there, and on a GPU."""

import pytest
import torch

from tests.kernels.triton.far import (
    DISTANCES,
    check_attention,
    check_attention_over_codes,
    check_digest_and_moves,
    check_quantisers,
    check_score,
)


@pytest.mark.interp
@pytest.mark.parametrize(("dim", "distance"), DISTANCES)
def test_attention(device: torch.device, dim: int, distance: int) -> None:
    check_attention(torch.float16, dim, distance, device)


@pytest.mark.interp
@pytest.mark.parametrize("dim", [0, 1])
def test_attention_over_codes(device: torch.device, dim: int) -> None:
    check_attention_over_codes(dim, device)


@pytest.mark.interp
@pytest.mark.parametrize(("dim", "distance"), DISTANCES)
def test_digest_and_moves(device: torch.device, dim: int, distance: int) -> None:
    check_digest_and_moves(torch.float16, dim, distance, device)


@pytest.mark.interp
@pytest.mark.parametrize("dim", [0, 1])
def test_score(device: torch.device, dim: int) -> None:
    check_score(torch.float16, dim, device)


@pytest.mark.interp
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_quantisers(device: torch.device, dim: int) -> None:
    check_quantisers(torch.float16, dim, device)


@pytest.mark.gpu
@pytest.mark.parametrize(("dim", "distance"), DISTANCES)
def test_on_a_gpu(dim: int, distance: int) -> None:
    device = torch.device("cuda")
    check_attention(torch.bfloat16, dim, distance, device)
    check_attention_over_codes(min(dim, 1), device)
    check_digest_and_moves(torch.bfloat16, dim, distance, device)
    check_score(torch.bfloat16, min(dim, 1), device)
    check_quantisers(torch.bfloat16, dim, device)
