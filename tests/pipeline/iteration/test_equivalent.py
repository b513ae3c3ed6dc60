"""One run said in two ways takes the same time, and what is alike is treated alike."""

from dataclasses import replace
from typing import Any

import hypothesis
import pytest

from dtk.pipeline.iteration import ScheduleChoice, estimate
from dtk.pipeline.iteration.run import FSDP
from dtk.workload.states import Sharding
from tests.costmodel.machines import LATENCIES, RATES, chip_of, machine_of_figures
from tests.pipeline.iteration.runs import run_of, runs


def result(run: Any) -> tuple[float, tuple[int, ...]]:
    found = estimate(run)
    return found.iteration_s, tuple(memory.states_bytes for memory in found.memory)


def named(run: Any, name: str) -> Any:
    return replace(run, schedule=ScheduleChoice(name))


@hypothesis.given(runs(("1f1b",)))
def test_without_a_pipeline_all_orders_are_one(run: Any) -> None:
    alone = {"pipeline_parallel": 1}
    layout, sharding = run.layout.model_copy(update=alone), Sharding()
    machine = replace(run.machine, chips_per_node=1, num_nodes=layout.num_ranks)
    run = replace(run, layout=layout, machine=machine, sharding=sharding)
    times = [result(named(run, name)) for name in ("1f1b", "gpipe", "bfs", FSDP)]
    assert times == times[:1] * 4


@hypothesis.given(runs())
def test_sequence_parallelism_of_a_single_rank_is_none(run: Any) -> None:
    layout = run.layout.model_copy(update={"tensor_parallel": 1})
    machine = replace(run.machine, chips_per_node=1, num_nodes=layout.num_ranks)
    both = [
        estimate(replace(run, machine=machine, layout=layout.model_copy(update={"sequence_parallel": each})))
        for each in (False, True)
    ]
    assert both[0].simulation == both[1].simulation
    assert both[0].memory == both[1].memory


@hypothesis.given(runs())
def test_an_optimizer_sharded_over_one_rank_is_whole(run: Any) -> None:
    plain, sharded = (result(replace(run, sharding=Sharding(stage, 1))) for stage in (0, 1))
    assert plain == sharded


@hypothesis.given(runs())
def test_even_stages_may_be_written_out(run: Any) -> None:
    written = replace(run, layers_per_stage=run.stage_layers)
    assert estimate(written).simulation == estimate(run).simulation


@hypothesis.given(runs())
def test_without_replicas_their_place_does_not_matter(run: Any) -> None:
    if run.num_replicas == 1:
        both = [result(replace(run, replicas_outermost=each)) for each in (False, True)]
        assert both[0] == both[1]


@hypothesis.given(runs())
def test_one_node_needs_no_network(run: Any) -> None:
    machine = replace(run.machine, num_nodes=1, chips_per_node=run.layout.num_ranks)
    slow = replace(machine, network_bytes_per_s=1.0, chip_network_bytes_per_s=1.0, network_latency_s=10.0)
    assert (
        estimate(replace(run, machine=machine)).simulation == estimate(replace(run, machine=slow)).simulation
    )


@hypothesis.given(runs())
def test_nodes_of_one_chip_need_no_fabric(run: Any) -> None:
    machine = replace(run.machine, chips_per_node=1, num_nodes=run.layout.num_ranks)
    slow = replace(machine, fabric_bytes_per_s=1.0, pair_bytes_per_s=1.0, fabric_latency_s=10.0)
    assert (
        estimate(replace(run, machine=machine)).simulation == estimate(replace(run, machine=slow)).simulation
    )


@pytest.mark.parametrize("nodes", [1, 2, 4, 8, 16])
def test_like_links_make_nodes_invisible(nodes: int) -> None:
    """Sixteen chips behind links of one kind: how many to a node does not matter."""
    run = run_of(
        layout={"data_parallel": 4, "tensor_parallel": 2, "pipeline_parallel": 2},
        job={"global_batch": 64},
        machine=machine_of_figures(
            chip=chip_of(peak=1e9, memory_bytes_per_s=1e9),
            num_nodes=nodes,
            chips_per_node=16 // nodes,
            **dict.fromkeys(RATES, 1e7) | {"network_bytes_per_s": 1e7 * 16 / nodes},
            **dict.fromkeys(LATENCIES, 1e-4),
        ),
    )
    one = replace(run, machine=replace(run.machine, num_nodes=1, chips_per_node=16))
    assert result(run)[0] == pytest.approx(result(one)[0], rel=1e-6)


@pytest.mark.parametrize("stage", [1, 3])
def test_outer_replicas_of_an_unsharded_stage_are_where_the_pipeline_says(stage: int) -> None:
    """Two pipelines of four ranks on nodes of four: replicas are neighbours, or on two nodes."""
    layout = {"data_parallel": 2, "pipeline_parallel": 4}
    rates = {"network_bytes_per_s": 1e3, "chip_network_bytes_per_s": 1e3}
    machine = machine_of_figures(chips_per_node=4, num_nodes=2, **dict.fromkeys(RATES, 1e9) | rates)
    sharding = Sharding(stage, 1)
    inside, outside = (
        run_of(
            layout=layout,
            machine=machine,
            sharding=sharding,
            replicas_outermost=each,
            schedule=ScheduleChoice("bfs"),
        )
        for each in (False, True)
    )
    assert (inside.replica_group().num_nodes, outside.replica_group().num_nodes) == (1, 2)
    assert [inside.crosses_nodes(rank, rank + 1) for rank in range(3)] == [False, True, False]
    assert [outside.crosses_nodes(rank, rank + 1) for rank in range(3)] == [False, False, False]
    plain = replace(outside, sharding=Sharding())
    assert plain.replica_group() == outside.replica_group()


@hypothesis.given(runs())
def test_where_nothing_is_sharded_the_size_of_a_group_says_nothing(run: Any) -> None:
    data = run.layout.data_parallel
    plain, sized = (replace(run, sharding=Sharding(0, ranks)) for ranks in (1, data))
    assert estimate(plain).simulation == estimate(sized).simulation
    assert plain.num_replicas == sized.num_replicas == data
