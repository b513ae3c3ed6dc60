"""The engines agree on named schedules, lowered in several ways; without the native one Python steps in."""

import logging
import random
import sys

import pytest

from dtk.errors import InputError
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.lowering import add_parameters, merge_backward
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate, simulate_memory, simulate_tasks
from dtk.simulation import native
from tests.pipeline.random_schedules import random_costs


def lowerings(schedule: Schedule) -> list[Schedule]:
    return [
        schedule,
        add_parameters(schedule, lookahead=3, resident_chunks=2),
        add_parameters(
            merge_backward(schedule),
            resident_chunks=2,
            reduce="microbatch",
            weight_grad_needs_parameters=True,
        ),
    ]


@pytest.mark.native
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_engines_agree(name: str) -> None:
    source = random.Random(name)
    for num_ranks, num_microbatches in ((1, 3), (2, 5), (4, 9), (5, 3)):
        num_chunks = SCHEDULES[name].min_chunks
        schedule = make_schedule(
            name, num_ranks=num_ranks, num_chunks=num_chunks, num_microbatches=num_microbatches
        )
        for lowered in lowerings(schedule):
            costs = random_costs(source, schedule.num_stages)
            for tell in (simulate, simulate_tasks, simulate_memory):
                assert tell(lowered, costs, engine="native") == tell(lowered, costs, engine="python")


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the compiled module look missing."""
    monkeypatch.setitem(sys.modules, "dtk._native", None)
    monkeypatch.delenv("DTK_REQUIRE_NATIVE", raising=False)
    monkeypatch.setattr(native, "_load", native._load.__wrapped__)
    native.warn_of_oracle.cache_clear()


@pytest.mark.usefixtures("without_native")
def test_python_steps_in(caplog: pytest.LogCaptureFixture) -> None:
    schedule = make_schedule("1f1b", num_ranks=2, num_chunks=1, num_microbatches=2)
    costs = StageCosts.of(2, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    with caplog.at_level(logging.WARNING, "dtk"):
        assert simulate(schedule, costs) == simulate(schedule, costs, engine="python")
    assert "simulations run in plain Python" in caplog.text
    with pytest.raises(ImportError, match="the compiled module is not installed"):
        simulate(schedule, costs, engine="native")


def test_an_unknown_engine_is_refused() -> None:
    schedule = make_schedule("1f1b", num_ranks=2, num_chunks=1, num_microbatches=2)
    costs = StageCosts.of(2, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    with pytest.raises(InputError, match=r"engine: must be native or python \(got 'fast'\)"):
        simulate(schedule, costs, engine="fast")  # type: ignore[arg-type]
