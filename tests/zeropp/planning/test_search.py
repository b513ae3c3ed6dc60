import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dtk.costmodel.machine import machine_of
from dtk.hardware.catalogue import load_catalogue
from dtk.zeropp.planning import search as search_module
from dtk.zeropp.planning.candidate import Candidate
from dtk.zeropp.planning.evaluation import Evaluated, Evaluator
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import Pins
from dtk.zeropp.planning.search import Progress, search
from dtk.zeropp.planning.uncounted import explain_uncounted
from tests.zeropp.planning.problems import every_evaluation, small_problem, tightened


def _order(evaluated: Evaluated) -> tuple[int, int]:
    return evaluated.estimate.simulation.makespan_ns, evaluated.estimate.peak_bytes


@pytest.mark.parametrize("method", METHODS)
def test_the_search_finds_what_trying_everything_finds(method: str) -> None:
    pins = Pins(micro_batch=2, shard_ranks=2) if method == "zeropp" else Pins()
    problem = small_problem(pins=pins)
    space = list(METHODS[method].space(problem))
    everything = every_evaluation(problem, space)
    peaks = sorted(each.estimate.peak_bytes for each in everything)
    for limit in (peaks[-1], peaks[len(peaks) // 2], peaks[len(peaks) // 10], peaks[0], peaks[0] - 1):
        fitting = [each for each in everything if each.estimate.peak_bytes <= limit]
        found = search(Evaluator(tightened(problem, limit)), space, keep=4)
        assert found.is_complete
        assert found.num_candidates == len(space)
        if not fitting:
            assert not found.best
            assert found.nearest_misses
            continue
        best = min(fitting, key=_order)
        assert _order(found.best[0]) == _order(best)
        of_family: dict[tuple[object, ...], int] = {}
        for each in fitting:
            makespan, family = each.estimate.simulation.makespan_ns, each.candidate.family
            of_family[family] = min(of_family.get(family, makespan), makespan)
        shortest = sorted(of_family.values())[:4]
        assert [each.estimate.simulation.makespan_ns for each in found.best] == shortest


def test_bounds_spare_most_simulations() -> None:
    problem = small_problem(global_batch=32)
    found = search(Evaluator(problem), METHODS["zeropp"].space(problem))
    assert found.num_simulated < found.num_candidates / 5


@pytest.mark.parametrize("method", ["zeropp", "3d", "fsdp"])
def test_more_memory_never_makes_a_plan_worse(method: str) -> None:
    problem = small_problem(pins=Pins(pipeline_parallel=4) if method == "zeropp" else Pins())
    space = list(METHODS[method].space(problem))
    times = []
    for limit in (3.0, 3.3, 3.7, 4.5, 6.0, 12.0):
        found = search(Evaluator(tightened(problem, limit * 2**30)), space)
        times.append(found.best[0].iteration_s if found.best else float("inf"))
    assert times == sorted(times, reverse=True)
    assert times[-1] < float("inf")


def test_the_order_of_the_space_does_not_matter() -> None:
    problem = small_problem(pins=Pins(pipeline_parallel=2, chunks=3))
    space = list(METHODS["zeropp"].space(problem))
    there = search(Evaluator(problem), space, keep=3)
    back = search(Evaluator(problem), space[::-1], keep=3)
    assert [_order(each) for each in there.best] == [_order(each) for each in back.best]


def test_a_deadline_ends_it_and_keeps_the_best_so_far() -> None:
    problem = small_problem()
    evaluator = Evaluator(problem)
    space = list(METHODS["zeropp"].space(problem))
    found = search(evaluator, space, deadline=time.monotonic() - 1)
    assert not found.is_complete
    assert not found.best
    assert not found.interrupted


def test_ctrl_c_ends_it_and_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem(pins=Pins(pipeline_parallel=4))
    evaluator = Evaluator(problem)
    evaluate, count = evaluator.evaluate, 0

    def interrupted(candidate: Candidate) -> Evaluated:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return evaluate(candidate)

    monkeypatch.setattr(evaluator, "evaluate", interrupted)
    found = search(evaluator, METHODS["zeropp"].space(problem))
    assert found.interrupted
    assert not found.is_complete
    assert found.best


def test_progress_counts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "_CHECK_EVERY", 1)
    problem = small_problem(pins=Pins(pipeline_parallel=4, micro_batch=1))
    told: list[Progress] = []
    found = search(Evaluator(problem), METHODS["zeropp"].space(problem), progress=told.append)
    assert told[0].best_s is None
    assert told[-1].best_s == found.best[0].iteration_s
    assert told[-1].num_simulated == found.num_simulated
    bests = [each.best_s for each in told if each.best_s is not None]
    assert bests == sorted(bests, reverse=True)


def test_a_near_miss_is_one_that_would_have_been_shorter() -> None:
    problem = small_problem(pins=Pins(pipeline_parallel=2, micro_batch=2, shard_ranks=4))
    space = list(METHODS["zeropp"].space(problem))
    everything = every_evaluation(problem, space)
    limit = sorted(each.estimate.peak_bytes for each in everything)[len(everything) // 4]
    found = search(Evaluator(tightened(problem, limit)), space)
    best_ns = found.best[0].estimate.simulation.makespan_ns
    assert found.nearest_misses
    assert all(each.bound_ns < best_ns and each.needs_bytes > limit for each in found.nearest_misses)
    needs = [each.needs_bytes for each in found.nearest_misses]
    assert needs == sorted(needs)


def test_families_differ_in_more_than_variants() -> None:
    problem = small_problem()
    found = search(Evaluator(problem), METHODS["zeropp"].space(problem), keep=3)
    families = [each.candidate.family for each in found.best]
    assert len(set(families)) == 3
    schedule = replace(found.best[0].candidate.schedule, unit=1)
    assert replace(found.best[0].candidate, schedule=schedule).family == families[0]


def test_a_time_that_cannot_be_counted_is_named_with_its_figure(tmp_path: Path) -> None:
    file = tmp_path / "slow.yaml"
    file.write_text(
        "links:\n- {name: slow, family: roce, bytes_per_s: 1B/s, latency_s: 5us, sources: {'*': here}}\n"
        "nodes:\n- {name: box, chip: A100, num_chips: 1, topology: switch, network: slow, "
        "nic_chips: [[0]], sources: {'*': here}}\n"
    )
    problem = replace(small_problem(), machine=machine_of("boxx2", load_catalogue(file)))
    found = search(Evaluator(problem), METHODS["zeropp"].space(problem))
    assert not found.best
    assert not found.is_complete
    assert found.uncounted is not None
    text = explain_uncounted(found.uncounted)
    # The smallest message: one sequence of 512 tokens, 768 wide, 2 bytes each, at 1 byte a second.
    assert text.startswith("its time: sending an activation to the next stage takes ")
    assert float(text.split(" takes ")[1].split(" s")[0]) >= 512 * 768 * 2
    assert "_ns" not in text


def test_listing_a_space_ends_with_the_deadline_too() -> None:
    problem = small_problem()
    one = next(iter(METHODS["zeropp"].space(problem)))
    found = search(Evaluator(problem), itertools.repeat(one), deadline=time.monotonic() + 0.05)
    assert not found.is_complete
    assert found.num_candidates > 0
