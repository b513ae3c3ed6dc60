"""The shipped checks that need no model: right on a healthy kernel, and off when the kernel is broken."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dtk_kernels.attention
from dtk.repro.catalogue import load_papers
from dtk.repro.checks import Observed, RunContext, bind_check, median_over_seeds
from dtk.repro.tolerance import judge

SHIPPED = {claim.id: claim for paper in load_papers() for claim in paper.claims}
FAST = [claim for claim in SHIPPED.values() if claim.check is not None and claim.minutes <= 0.1]


def observe(claim_id: str, seed: int = 0, **changes: Any) -> Observed:
    claim = SHIPPED[claim_id]
    assert claim.check is not None
    return bind_check(claim.check, {**claim.parameters, **changes})(RunContext(seed=seed, threads=1))


def passes(claim_id: str, observed: Observed) -> bool:
    expected = SHIPPED[claim_id].expected
    return judge(expected.value, expected.tolerance, observed.value).passed


@pytest.mark.parametrize("claim", FAST, ids=lambda claim: claim.id)
@pytest.mark.parametrize("seed", [0, 1])
def test_fast_claims_hold_with_any_seed(claim: Any, seed: int) -> None:
    observed = observe(claim.id, seed)
    assert passes(claim.id, observed), observed.value
    assert observed.basis == claim.basis


def test_the_papers_own_arithmetic() -> None:
    # 32k tokens x 64 layers x 4 KiB is 8 GiB; the CPU share of one layer is 27 MB in 0.27 ms (scout 1.4).
    sizes = observe("scout.kv-bytes").value
    assert sizes == {"one token in one layer": 4 << 10, "one request": 8 << 30}
    load = observe("scout.cpu-load")
    assert (
        load.details["CPU time as a share of the layer"]
        < 1
        < load.details["link time as a share of the layer"]
    )
    recall = observe("scout.recall-load").details
    assert (recall["blocks a layer and recall"], recall["link time as a share of the window"] < 1) == (
        8,
        True,
    )


@pytest.mark.parametrize(
    ("claim_id", "changes"),
    [
        ("scout.kv-bytes", {"num_kv_heads": 64}),
        ("scout.cpu-load", {"cpu_ratio": 0.0820001}),
        ("scout.recall-load", {"mean_interval_steps": 8.0}),
    ],
)
def test_arithmetic_of_another_model_is_off(claim_id: str, changes: dict[str, Any]) -> None:
    assert not passes(claim_id, observe(claim_id, **changes))


def base_two(merge: Callable[..., Any], outputs: torch.Tensor, lses: torch.Tensor) -> Any:
    """Take natural logarithms for logarithms to base two, a mistake that kernels have made."""
    output, _ = merge(outputs, lses * torch.log(torch.tensor(2.0)))
    return output, lses.logsumexp(0)


def keep_first(merge: Callable[..., Any], outputs: torch.Tensor, lses: torch.Tensor) -> Any:
    return outputs[0], lses[0]


@pytest.mark.parametrize("mistake", [base_two, keep_first])
def test_a_wrong_merge_is_found(monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., Any]) -> None:
    merge = dtk_kernels.attention.merge_partials
    monkeypatch.setattr(
        dtk_kernels.attention, "merge_partials", lambda outputs, lses: mistake(merge, outputs, lses)
    )
    assert not passes("scout.partial-merge", observe("scout.partial-merge", num_seeds=2))


def test_a_digest_in_fp32_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = dtk_kernels.attention.block_digest
    monkeypatch.setattr(
        dtk_kernels.attention,
        "block_digest",
        lambda keys, lengths: tuple(half.float() for half in digest(keys, lengths)),
    )
    assert not passes("scout.digest-memory", observe("scout.digest-memory"))


def test_the_median_over_seeds_keeps_all_samples() -> None:
    observed = median_over_seeds([3.0, 1.0, 2.0], basis="measured", details={"seeds": 3})
    assert observed.value == 2.0
    assert observed.details == {"samples": [3.0, 1.0, 2.0], "seeds": 3}


@pytest.mark.parametrize("position", range(3))
def test_a_nan_among_the_seeds_is_not_outvoted(position: int) -> None:
    samples = [1.0, 1.0, 1.0]
    samples[position] = float("nan")
    value = median_over_seeds(samples, basis="measured").value
    assert value != value
