"""The checks that decode with the real model, on a prompt far shorter than the claims'."""

import inspect

import pytest
import torch

from dtk.repro.checks import Observed, RunContext, scout_generation
from dtk.scout import generation

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

SIZES = {"prompt_tokens": 384, "new_tokens": 10, "budget_tokens": 128}


@pytest.fixture(scope="module")
def context() -> RunContext:
    return RunContext(seed=0, threads=2)


def test_checks_share_one_generation_and_observe_what_they_say(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    generate = generation.generate

    def counted(*arguments: object, **keywords: object) -> generation.GenerationReport:
        calls.append(arguments)
        return generate(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(generation, "generate", counted)
    monkeypatch.setattr("dtk.scout.generate", counted)
    before = torch.get_num_threads()
    cosine = scout_generation.query_cosine(context, **SIZES, from_layer=3)
    ratio = scout_generation.cpu_ratio(context, **SIZES)
    churn = scout_generation.churn(context, **SIZES)
    agreement = scout_generation.dense_agreement(context, **SIZES)
    assert len(calls) == 1
    recall = scout_generation.recall_effect(context, **SIZES)
    assert len(calls) == 2
    assert torch.get_num_threads() == before
    assert 0.9 < _number(cosine) < 1
    assert 0 < _number(ratio) < 1
    assert 0 < _number(churn) < 1
    assert isinstance(agreement.value, dict)
    assert 0 <= float(agreement.value["token agreement"]) <= 1
    assert float(agreement.value["mean KL (nats)"]) > 0
    assert _number(recall) > 0
    for observed in (cosine, ratio, churn, agreement, recall):
        assert observed.basis == "measured"
        assert observed.details["prompt tokens"] == 384


def test_full_budget_check_finds_no_difference(context: RunContext) -> None:
    sizes = {**SIZES, "budget_tokens": 512, "new_tokens": 4}
    value = scout_generation.full_budget(context, **sizes).value
    assert isinstance(value, dict)
    assert value["token agreement"] == 1
    assert float(value["largest logit difference"]) < 2e-3


def test_every_check_is_public_and_documented() -> None:
    for name in scout_generation.__all__:
        assert inspect.getdoc(getattr(scout_generation, name))


def _number(observed: Observed) -> float:
    assert isinstance(observed.value, (int, float))
    return float(observed.value)
