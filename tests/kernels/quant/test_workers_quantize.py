"""Quantisation by workers: the bits of the direct call, whatever the threads, the tasks and their order."""

from typing import Any

import pytest
import torch

from dtk_kernels import quant
from dtk_kernels.workers import Workers

# What several tasks share out: rows of blocks, columns, one block for all, and two passes over x.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "1x128": ("e4m3", {"block": (1, 128)}),
    "1x16": ("e2m1", {"block": (1, 16), "scale_format": "bf16"}),
    "mxfp4": ("mxfp4", {}),
    "columns": ("int8", {"block": (None, 1)}),
    "squares": ("e4m3", {"block": (128, 128), "scale_format": "e8m0"}),
    "rows": ("int4", {"block": (1, None)}),
    "one": ("e4m3", {"block": None}),
    "one nvfp4": ("e2m1", {"block": None, "scale_format": "nvfp4"}),
    "nvfp4": ("nvfp4", {}),
}


def numbers() -> torch.Tensor:
    x = torch.randn(3, 301, 1000, generator=torch.Generator().manual_seed(3))
    x[1, 7, 500] = 1e4
    return x


def parts(codes: torch.Tensor, scales: torch.Tensor | quant.NvScales) -> list[torch.Tensor]:
    """Everything that quantize returns, as bytes."""
    every = (codes, *scales) if isinstance(scales, quant.NvScales) else (codes, scales)
    return [part.reshape(-1).view(torch.uint8) for part in every]


@pytest.mark.parametrize("case", CASES)
def test_workers_give_the_bits_of_the_direct_call(workers: Workers, case: str) -> None:
    name, options = CASES[case]
    x = numbers()[:, :, ::2]
    jobs = workers.submit_quantize(x, name, **options), workers.submit_fake_quantize(x, name, **options)
    codes, scales = jobs[0].wait()
    for computed, expected in zip(
        parts(codes, scales), parts(*quant.quantize(x, name, **options)), strict=True
    ):
        assert torch.equal(computed, expected)
    assert torch.equal(jobs[1].wait(), quant.fake_quantize(x, name, **options))


@pytest.mark.native
@pytest.mark.parametrize("groups", [(1, None), (3, 1), (4, 2), (5, None)])
def test_results_do_not_depend_on_threads_and_groups(groups: tuple[int, int | None]) -> None:
    x = numbers()
    random_bits = torch.randint(-(2**31), 2**31, x.shape).to(torch.int32)
    stochastic = {"rounding": "stochastic", "random_bits": random_bits}
    with Workers(*groups) as several:
        for name, options in CASES.values():
            jobs = [several.submit_fake_quantize(x, name, **options, **stochastic) for _ in range(3)]
            expected = quant.fake_quantize(x, name, **options, **stochastic)
            for job in reversed(jobs):
                assert torch.equal(job.wait(), expected)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,)])
@pytest.mark.parametrize("case", CASES)
def test_nothing_to_do(workers: Workers, case: str, shape: tuple[int, ...]) -> None:
    name, options = CASES[case]
    x = torch.ones(shape)
    computed = parts(*workers.submit_quantize(x, name, **options).wait())
    for one, expected in zip(computed, parts(*quant.quantize(x, name, **options)), strict=True):
        assert torch.equal(one, expected)


def test_wrong_arguments_show_at_submission(workers: Workers) -> None:
    x = torch.ones(4, 4)
    with pytest.raises(ValueError, match=r"^format must be one of"):
        workers.submit_quantize(x, "fp5", block=None)
    with pytest.raises(ValueError, match=r"^random_bits is required for rounding 'stochastic'"):
        workers.submit_fake_quantize(x, "e2m1", block=None, rounding="stochastic")
    with pytest.raises(ValueError, match=r"^x must be a CPU tensor"):
        workers.submit_fake_quantize(torch.ones(4, device="meta"), "mxfp4")
