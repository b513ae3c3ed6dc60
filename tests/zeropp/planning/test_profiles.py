"""Plans from measured layers: those of the roofline itself, faster ones, and what was not measured."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from dtk.costmodel.collectives import Communication
from dtk.costmodel.layer import embedding_time, head_time, layer_time
from dtk.costmodel.profiles import Conditions, MeasuredPart, ModelProfile
from dtk.costmodel.roofline import Roofline
from dtk.errors import InputError
from dtk.workload.activations import ActivationSettings
from dtk.zeropp.planning.config import PlanConfig
from dtk.zeropp.planning.planner import plan
from dtk.zeropp.planning.problem import PlanProblem
from dtk.zeropp.planning.request import make_problem
from tests.zeropp.planning.problems import small_problem

TIMES = {"layer": layer_time, "embedding": embedding_time, "head": head_time}


def as_measured(problem: PlanProblem, ranks: Iterable[int] = (1,), factor: float = 1.0) -> PlanProblem:
    """Return the problem with the roofline's own times, times a factor, as if they had been measured."""
    profiles = []
    for tensor_parallel in ranks:
        roofline = Roofline(problem.machine.chip, problem.machine.constants, "bf16", 2)
        rows = []
        for micro_batch in (1, 2):
            settings = ActivationSettings(
                micro_batch,
                problem.sequence_tokens,
                tensor_parallel,
                sequence_parallel=tensor_parallel > 1,
                flash_attention=problem.flash_attention,
                attention_dropout=False,
                hidden_dropout=False,
            )
            for part, time_of in TIMES.items():
                times = time_of(
                    problem.shape, settings, roofline, Communication(problem.machine, problem.stack)
                )
                rows.append(
                    MeasuredPart(
                        part=part,  # type: ignore[arg-type]
                        micro_batch=micro_batch,
                        forward_s=factor * times.forward_s,
                        backward_s=factor * (times.input_grad_s + times.weight_grad_s),
                        input_grad_s=factor * times.input_grad_s,
                    )
                )
        conditions = Conditions.of(problem.shape, settings, problem.machine.chip.name, "bf16")
        profiles.append(ModelProfile(conditions, "the roofline", "measured", tuple(rows)))
    return replace(problem, profiles=tuple(profiles))


def test_times_of_the_roofline_as_a_profile_give_its_plan() -> None:
    problem = small_problem()
    own, profiled = plan(problem, rivals=["fsdp"]), plan(as_measured(problem), rivals=["fsdp"])
    assert own.best is not None
    assert profiled.best is not None
    assert profiled.best.candidate == own.best.candidate
    # Times are rounded to a nanosecond, layer by layer or stage by stage.
    assert profiled.best.iteration_s == pytest.approx(own.best.iteration_s, rel=1e-6)
    assert profiled.rivals["fsdp"].best[0].candidate == own.rivals["fsdp"].best[0].candidate
    assert "measured layers (the roofline)" in profiled.best.estimate.basis


def test_slower_layers_give_slower_plans() -> None:
    problem = small_problem()
    times = [plan(as_measured(problem, factor=factor)).best for factor in (1.0, 1.5)]
    assert times[0] is not None
    assert times[1] is not None
    assert times[0].iteration_s < times[1].iteration_s <= 1.5 * times[0].iteration_s


def test_what_was_not_measured_is_left_out() -> None:
    problem = small_problem()
    only_one, both = (plan(as_measured(problem, ranks), rivals=["3d-tp"]) for ranks in ((1,), (1, 2)))
    # That method shares layers over two ranks or more.
    assert only_one.left_out == {"3d-tp": "not profiled"}
    assert both.left_out == {}
    assert {each.candidate.tensor_parallel for each in both.rivals["3d-tp"].best} == {2}
    assert only_one.search.not_profiled is None
    # Micro-batches of 4 were not profiled.
    wide = as_measured(small_problem(max_micro_batch=4))
    assert plan(wide).search.not_profiled is not None


def test_a_problem_of_which_nothing_was_measured_is_refused() -> None:
    problem = as_measured(small_problem(), (1,))
    elsewhere = replace(
        problem,
        profiles=tuple(
            replace(each, conditions=replace(each.conditions, tensor_parallel=8)) for each in problem.profiles
        ),
    )
    with pytest.raises(InputError, match=r"nothing was profiled under these conditions.*tensor_parallel 1"):
        plan(elsewhere)


def test_a_file_of_profiles(tmp_path: Path) -> None:
    file = tmp_path / "layers.csv"
    file.write_text(
        "model,chip,precision,sequence_tokens,micro_batch,forward_s,backward_s,source\n"
        "gpt3-125m,A100,bf16,512,1,0.001,0.002,a trace\n"
        "gpt3-125m,A100,bf16,512,4,0.003,0.006,a trace\n"
    )
    config = PlanConfig(
        model="gpt3-125m", cluster="DGX-A100x1", global_batch=16, sequence_tokens=512, profiles=file
    )
    found = plan(make_problem(config), rivals=["fsdp"])
    assert found.best is not None
    assert found.best.candidate.micro_batch <= 4
    assert found.best.estimate.basis == (
        "simulated from measured layers (a trace), embedding and head from the roofline"
    )
    missing = config.model_copy(update={"profiles": tmp_path / "none.csv"})
    with pytest.raises(InputError, match=r"^profiles: is no file"):
        make_problem(missing)
