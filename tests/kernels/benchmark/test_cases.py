"""The benchmark's cases: every small one is right, and a wrong answer does not pass."""

import dataclasses
from itertools import chain

import pytest
import torch

from dtk_kernels.benchmark.attention_cases import attention_cases
from dtk_kernels.benchmark.case import Case
from dtk_kernels.benchmark.kv_cases import kv_cases


def small_cases() -> list[Case]:
    return [make() for _, make in chain(attention_cases(small=True), kv_cases(small=True))]


def test_ours_and_torchs_ways_give_the_references_results() -> None:
    cases = small_cases()
    assert len({case.operation for case in cases}) == 7
    for case in cases:
        case.check()


@pytest.mark.parametrize("who", ["ours", "peer"])
def test_a_wrong_answer_does_not_pass(who: str) -> None:
    for case in small_cases():
        wrong = _disturbed(case)
        name = next(iter(case.peers))
        changed = {"ours": wrong} if who == "ours" else {"peers": {**case.peers, name: wrong}}
        with pytest.raises(AssertionError, match="ours" if who == "ours" else name):
            dataclasses.replace(case, **changed).check()


def _disturbed(case: Case):  # type: ignore[no-untyped-def]
    def call() -> object:
        result = case.ours()
        first = result[0] if isinstance(result, tuple) else result
        first.view(-1)[0] += torch.tensor(5, dtype=first.dtype) * (1 + first.view(-1)[0].abs())
        return result

    return call
