"""What stock torch holds: against torch's own lowering, and against counts by hand."""

import itertools
from pathlib import Path

import pytest
from torch.distributed.pipelining import schedules

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.torch_adapter import to_torch
from dtk.workload.reading import load_shape
from dtk.zeropp.planning.evaluation import Evaluated, Evaluator
from dtk.zeropp.planning.export import export_plan
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import Pins
from dtk.zeropp.planning.stock import compute_schedule, lowered_as_torch, stock_data, stock_memory
from dtk.zeropp.planning.torchtitan import recipe_python, recipe_toml
from tests.zeropp.planning.problems import small_problem


def evaluated(model: str = "gpt3-125m", **pins: object) -> Evaluated:
    given = {"pipeline_parallel": 2, "chunks": 3, "unit": 2, "micro_batch": 2, "shard_ranks": 4}
    problem = small_problem(
        model,
        "DGX-A100x2",
        global_batch=64,
        pins=Pins(**(given | pins)),  # type: ignore[arg-type]
    )
    return Evaluator(problem).evaluate(next(iter(METHODS["zeropp"].space(problem))))


def without_order_of_frees(row: list[str]) -> list[str]:
    """Return the row with neighbouring frees sorted: torch takes them from a set."""
    groups = itertools.groupby(row, key=lambda text: text.endswith("RESHARD"))
    return [text for frees, group in groups for text in (sorted(group) if frees else group)]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("options", [{"recomputation": "full"}, {"recomputation": "none", "split": True}])
def test_the_same_gathers_and_reductions_as_torch(limit: int, options: dict[str, object]) -> None:
    compute = compute_schedule(evaluated(**options))
    ours = lowered_as_torch(compute, limit)
    for rank, actions in to_torch(compute).items():
        gathered = schedules._add_unshard_reshard(actions, limit)
        theirs = schedules._add_reduce_grad(list(gathered), compute.num_microbatches)
        assert without_order_of_frees(list(map(str, ours.actions[rank]))) == without_order_of_frees(
            list(map(str, theirs))
        )


def test_torchs_own_limit_is_three() -> None:
    row = [schedules._Action(stage, schedules.FORWARD, 0) for stage in range(5)]
    gathers = [str(action) for action in schedules._add_unshard_reshard(list(row))][:4]
    assert gathers == ["0UNSHARD", "1UNSHARD", "2UNSHARD", "0F0"]


def test_all_stages_stay_unreduced_together() -> None:
    plan = evaluated(recomputation="full")
    for row in lowered_as_torch(compute_schedule(plan)).actions:
        reductions = [action for action in row if action.kind is Kind.REDUCE_GRAD]
        assert len(reductions) == len(set(reductions)) == plan.candidate.chunks
        assert isinstance(reductions[0], Action)
    stock = stock_memory(plan)
    assert stock.plan_bytes == plan.estimate.peak_bytes
    assert stock.plan_bytes < stock.least_bytes <= stock.default_bytes
    gradients = [each.parameters.per_rank * 4 for each in plan.estimate.stages]
    # At most what all stages of the fullest rank hold more: gradients, and two stages gathered besides.
    assert stock.default_bytes - stock.plan_bytes <= sum(gradients)


def test_it_is_said_in_the_recipes_and_the_data(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    plan = evaluated()
    stock, data = stock_memory(plan), stock_data(plan)
    assert data["fits"]
    assert (data["least_bytes"], data["basis"]) == (stock.least_bytes, "simulated")
    assert f"{stock.default_bytes} bytes" in recipe_toml(plan, "schedule.csv")
    assert "gathers up to 3 stages" in recipe_toml(plan, "schedule.csv")
    assert f"{stock.least_bytes} bytes" in recipe_python(plan, "schedule.csv")
    assert "DOES NOT FIT" not in recipe_toml(plan, "schedule.csv")
    export_plan(plan, tmp_path, title="a plan")
    assert not caplog.records


def test_a_recipe_that_does_not_fit_warns(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    plan = evaluated(
        "opt-30b", chunks=12, recomputation="full", keep_last_chunk=False, micro_batch=1, shard_ranks=8
    )
    assert plan.fits
    assert not stock_memory(plan).fits
    export_plan(plan, tmp_path, title="a plan")
    assert "recipes do not fit: stock torch holds" in caplog.text
    assert "DOES NOT FIT" in (tmp_path / "torchtitan.toml").read_text()
    assert "DOES NOT FIT" in (tmp_path / "torchtitan_recipe.py").read_text()


@pytest.mark.parametrize(
    ("model", "flavor"), [("llama3-8b", "8B"), ("llama3-70b", "70B"), ("llama3-405b", "405B")]
)
def test_models_that_torchtitan_has_are_named(model: str, flavor: str) -> None:
    plan = evaluated(model, chunks=1)
    assert plan.estimate.run.shape == load_shape(model)
    assert f'name = "llama3"\nflavor = "{flavor}"' in recipe_toml(plan, "schedule.csv")
    text = recipe_python(plan, "schedule.csv")
    if flavor == "405B":
        assert "from FILL_IN import FILL_IN as base" in text
    else:
        assert f"import llama3_{flavor.lower()} as base" in text


def test_other_models_are_to_be_filled_in() -> None:
    plan = evaluated()
    for text in (recipe_toml(plan, "schedule.csv"), recipe_python(plan, "schedule.csv")):
        assert "FILL_IN: torchtitan has no recipe for gpt3-125m" in text
        assert "12 layers, hidden size 768, 12 heads of 64" in text
        assert "8B" not in text
