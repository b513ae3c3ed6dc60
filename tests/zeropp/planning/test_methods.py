import pytest

from dtk.zeropp.planning.evaluation import Evaluator
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import RIVALS, ZEROPP, Pins
from dtk.zeropp.planning.spaces import divisors, units
from tests.zeropp.planning.problems import small_problem


def test_rivals_are_all_methods_but_zeropp() -> None:
    assert (ZEROPP, *RIVALS) == tuple(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_a_space_holds_each_configuration_once_and_all_of_them_run(method: str) -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32)
    space = list(METHODS[method].space(problem))
    assert len(set(space)) == len(space) > 0
    for candidate in space:
        run = candidate.run(problem)
        assert run.layout.num_ranks == problem.machine.num_chips
        assert (
            candidate.schedule.name
            in {
                "zeropp": {"zeropp"},
                "3d": {"1f1b", "interleaved"},
                "3d-tp": {"1f1b", "interleaved"},
                "fsdp": {"fsdp"},
                "bfs": {"bfs"},
                "1f1b-zero3": {"1f1b"},
                "interleaved-zero3": {"interleaved"},
                "zb-h1": {"zb-h1"},
                "zb-v": {"zb-v"},
            }[method]
        )


def test_the_space_of_zeropp() -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32)
    space = list(METHODS[ZEROPP].space(problem))
    assert {each.pipeline_parallel for each in space} == {2, 4}
    assert {each.chunks for each in space if each.pipeline_parallel == 4} == {1, 3}
    assert {each.sharding.ranks for each in space if each.pipeline_parallel == 2} == {2, 4, 8}
    assert {each.micro_batch for each in space} == {1, 2}
    assert {each.recomputation for each in space} == {"none", "full"}
    assert {each.tensor_parallel for each in space} == {1}
    assert all(not each.schedule.split for each in space if each.recomputation == "full")
    assert {each.hybrid for each in space} == {None, "zero3-dp", "zero3-zero1"}
    # A node's worth of ranks comes first, so that it wins ties.
    assert space[0].sharding.ranks == 8


@pytest.mark.parametrize(
    ("pins", "attribute", "value"),
    [
        (Pins(pipeline_parallel=4), "pipeline_parallel", 4),
        (Pins(pipeline_parallel=1), "pipeline_parallel", 1),
        (Pins(chunks=3), "chunks", 3),
        (Pins(micro_batch=2), "micro_batch", 2),
        (Pins(recomputation="full"), "recomputation", "full"),
        (Pins(hybrid="zero3-zero1"), "hybrid", "zero3-zero1"),
        (Pins(keep_last_chunk=True, recomputation="full"), "keep_last_chunk", True),
        (Pins(split=True), "splits_backward", True),
    ],
)
def test_an_option_that_is_given_stays(pins: Pins, attribute: str, value: object) -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32, pins=pins)
    space = list(METHODS[ZEROPP].space(problem))
    assert space
    assert {getattr(each, attribute) for each in space} == {value}


def test_options_of_schedule_and_sharding_that_are_given_stay() -> None:
    pins = Pins(unit=3, shard_ranks=4, resident_chunks=2)
    space = list(METHODS[ZEROPP].space(small_problem(pins=pins)))
    assert {(each.schedule.unit, each.sharding.ranks) for each in space} == {(3, 4)}
    assert {each.schedule.resident_chunks for each in space} == {2}


def test_pins_are_zeropps_alone() -> None:
    free, pinned = small_problem(), small_problem(pins=Pins(micro_batch=1, pipeline_parallel=2))
    for name in RIVALS:
        assert list(METHODS[name].space(free)) == list(METHODS[name].space(pinned))


def test_megatron_interleaves_only_what_the_ranks_divide() -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x1", global_batch=24)
    for candidate in METHODS["3d"].space(problem):
        run = candidate.run(problem)
        if candidate.chunks > 1:
            assert run.num_microbatches % candidate.pipeline_parallel == 0
        assert run.layout.sequence_parallel == (candidate.tensor_parallel > 1)


def test_selective_recomputation_is_for_attention_that_keeps_scores() -> None:
    space = METHODS["3d"].space(small_problem(flash_attention=False))
    assert {each.recomputation for each in space} == {"none", "selective", "full"}


def test_units() -> None:
    assert units(4, 16) == (1, 2, 4, 7, 8, 12, 16)
    assert units(4, 3) == (1, 3)
    assert units(2, 1) == (1,)
    assert divisors(12) == (1, 2, 3, 4, 6, 12)


def test_v_shaped_stages() -> None:
    candidate = next(iter(METHODS["zb-v"].space(small_problem())))
    schedule = Evaluator(small_problem()).evaluate(candidate).estimate.schedule
    assert tuple(candidate.rank_of_stage()) == schedule.rank_of_stage
