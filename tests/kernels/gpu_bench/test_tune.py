"""Launch plans as contenders, in Triton's interpreter: all are right, and what fails is left out."""

from typing import Any

import pytest
import torch

from dtk_kernels.attention.sparse_decode_attention.launch_plan import Pipeline, pipeline_for, tiles_for
from dtk_kernels.gpu_bench import tune
from dtk_kernels.gpu_bench.cases import Case, tuned_cases
from dtk_kernels.gpu_bench.tune import Plan, contenders, plans
from tests.kernels.gpu_bench.fakes import Clock, make_bench

CASE = Case("sparse_decode_attention", "fp16", 1, tokens=270, block_size=32, num_kv_heads=1, head_dim=16)


def test_plans_are_distinct_and_fit_a_gpu() -> None:
    for case in tuned_cases():
        everything = plans(case)
        assert len({plan.name for plan in everything}) == len(everything)
        in_use = pipeline_for(torch.bfloat16, torch.bfloat16, head_dim=128, group_size=4)
        assert everything[0] == Plan(in_use)
        assert {plan.splits for plan in everything if plan.pipeline == in_use} == {None, 1, 2, 4, 8, 16, 32}
        for plan in everything:
            tiles = tiles_for(
                torch.bfloat16,
                torch.bfloat16,
                head_dim=128,
                block_size=32,
                group_size=4,
                pipeline=plan.pipeline,
            )
            assert tiles.shared_bytes <= 150 * 1024
            assert tiles.tokens == plan.pipeline.tokens
            assert tiles.num_stages == 1 + plan.pipeline.buffers


@pytest.mark.interp
@pytest.mark.usefixtures("_interpreted")
def test_every_plan_computes_the_same() -> None:
    bench = make_bench(Clock(), [])
    row = tune.time(bench, CASE)
    assert list(row["contenders"]) == ["triton", *(plan.name for plan in plans(CASE)[1:])]
    assert bench.notes == []


@pytest.mark.interp
@pytest.mark.usefixtures("_interpreted")
def test_plans_that_fail_or_are_wrong_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = tune.sparse_decode_attention

    def fragile(*arguments: Any, pipeline: Pipeline, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if pipeline.tokens == 32:
            raise ValueError("out of resource: shared memory\nReduce something")
        output, lse = right(*arguments, pipeline=pipeline, **options)
        return output + (pipeline.num_warps == 8), lse

    monkeypatch.setattr(tune, "sparse_decode_attention", fragile)
    bench = make_bench(Clock(), [])
    found = contenders(bench, CASE)
    assert not any("32 tokens" in name or "8 warps" in name for name in found)
    assert len(found) > 8
    reason = "does not run here: ValueError: out of resource: shared memory"
    assert f"32 tokens, 2 buffers, 4 warps: {reason}" in bench.notes
    assert "64 tokens, 2 buffers, 8 warps: wrong" in bench.notes
