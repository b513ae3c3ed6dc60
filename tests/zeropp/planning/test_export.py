import ast
import tomllib
from pathlib import Path

import pytest

from dtk.pipeline.action import Kind
from dtk.pipeline.text import schedule_from_text
from dtk.pipeline.validate import validate
from dtk.zeropp.planning.evaluation import Evaluated, Evaluator
from dtk.zeropp.planning.export import export_plan
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import Pins
from dtk.zeropp.planning.stock import compute_schedule
from dtk.zeropp.planning.torchtitan import recipe_python, recipe_toml
from tests.zeropp.planning.problems import small_problem


def evaluated(**pins: object) -> Evaluated:
    given = {"pipeline_parallel": 2, "chunks": 3, "unit": 2, "micro_batch": 2, "shard_ranks": 4}
    problem = small_problem(
        "gpt3-125m",
        "DGX-A100x2",
        global_batch=64,
        pins=Pins(**(given | pins)),  # type: ignore[arg-type]
    )
    return Evaluator(problem).evaluate(next(iter(METHODS["zeropp"].space(problem))))


def test_all_files(tmp_path: Path) -> None:
    plan = evaluated()
    export_plan(plan, tmp_path, title="a plan")
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {
        "schedule.csv",
        "schedule_with_communication.csv",
        "torchtitan.toml",
        "torchtitan_recipe.py",
        "timeline.json.gz",
        "timeline.svg",
    }
    for name in ("schedule.csv", "schedule_with_communication.csv"):
        schedule = schedule_from_text((tmp_path / name).read_text())
        validate(schedule)
        assert schedule.rank_of_stage == plan.estimate.schedule.rank_of_stage
        assert schedule.num_microbatches == plan.estimate.run.num_microbatches
        assert schedule.compute_only().actions == plan.estimate.schedule.compute_only().actions
    kinds = {action.kind for row in schedule.actions for action in row}
    assert {Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD, Kind.SEND_F, Kind.RECV_B} <= kinds


@pytest.mark.parametrize("options", [{"recomputation": "full"}, {"recomputation": "none", "split": False}])
def test_a_joined_backward_is_one_action(options: dict[str, object]) -> None:
    plan = evaluated(**options)
    schedule = compute_schedule(plan)
    validate(schedule)
    kinds = [action.kind for row in schedule.actions for action in row]
    assert set(kinds) == {Kind.FORWARD, Kind.FULL_BACKWARD}
    assert kinds.count(Kind.FORWARD) == kinds.count(Kind.FULL_BACKWARD)


def test_the_toml_recipe() -> None:
    recipe = tomllib.loads(recipe_toml(evaluated(hybrid="zero3-zero1"), "schedule.csv"))
    parallelism = recipe["parallelism"]
    degrees = [
        parallelism[key]
        for key in (
            "data_parallel_replicate_degree",
            "data_parallel_shard_degree",
            "tensor_parallel_degree",
            "pipeline_parallel_degree",
        )
    ]
    assert degrees == [2, 4, 1, 2]
    assert parallelism["pipeline_parallel_layers_per_stage"] == 2
    assert parallelism["pipeline_parallel_schedule_csv"] == "schedule.csv"
    assert parallelism["pipeline_parallel_microbatch_size"] == 2
    assert recipe["training"]["local_batch_size"] == 8
    assert recipe["training"]["global_batch_size"] == 64
    assert recipe["training"]["seq_len"] == 512
    assert recipe["activation_checkpoint"] == {"mode": "none"}


def test_what_torchtitan_has_no_key_for_is_said() -> None:
    plain = recipe_toml(evaluated(hybrid="zero3-dp"), "schedule.csv")
    assert "zero3-zero1" not in plain
    text = recipe_toml(
        evaluated(recomputation="full", keep_last_chunk=True, hybrid="zero3-zero1"), "schedule.csv"
    )
    assert "spares the last stage" in text
    assert "zero3-zero1" in text
    assert tomllib.loads(text)["activation_checkpoint"] == {"mode": "full"}


@pytest.mark.parametrize("recomputation", ["none", "full"])
def test_the_python_recipe_sets_what_the_plan_says(recomputation: str) -> None:
    text = recipe_python(evaluated(recomputation=recomputation), "schedule.csv")
    tree = ast.parse(text)
    (function,) = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    assert function.name == "zeropp"
    settings = {
        ast.unparse(each.targets[0]): ast.unparse(each.value)
        for each in function.body
        if isinstance(each, ast.Assign)
    }
    assert settings["parallelism.pipeline_parallel_degree"] == "2"
    assert settings["parallelism.num_pp_microbatches"] == "4"
    assert settings["config.training.num_tokens_per_microbatch_per_dp_rank"] == "1024"
    assert settings["config.training.num_tokens_per_train_step"] == str(64 * 512)
    is_full = recomputation == "full"
    assert settings["config.activation_checkpoint"] == ("FullActivationRematConfig()" if is_full else "None")
