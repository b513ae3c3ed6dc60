"""What is refused before any search, in one line."""

import pytest

from dtk.errors import InputError
from dtk.workload.reading import load_shape
from dtk.zeropp.planning import request
from dtk.zeropp.planning.config import PlanConfig
from dtk.zeropp.planning.request import make_problem


def config(**settings: object) -> PlanConfig:
    small = {"model": "gpt3-125m", "cluster": "DGX-A100x1", "global_batch": 16}
    return PlanConfig.model_validate(small | settings)


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        ({"memory": "1e400GiB"}, "memory", "is more than the 80 GiB of A100"),
        ({"memory": "81GiB"}, "memory", "is more than the 80 GiB of A100"),
        ({"global_batch": 1_000_000_007}, "global_batch", "is more than the 1000000 sequences"),
    ],
)
def test_sizes_without_end_are_refused(settings: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        make_problem(config(**settings))
    assert caught.value.field == field
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


def test_all_of_the_chips_memory_may_be_given() -> None:
    problem = make_problem(config(memory="80GiB"))
    assert problem.limit_bytes == problem.machine.chip.memory_bytes


def test_a_model_of_too_many_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = load_shape("gpt3-125m").model_copy(update={"num_layers": 10**9})
    monkeypatch.setattr(request, "load_shape", lambda _: endless)
    with pytest.raises(InputError, match="has 1000000000 layers, and up to 10000 are planned"):
        make_problem(config())
