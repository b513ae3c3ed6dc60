"""Stage costs against sums written out by hand; a FLOP, a byte and a second are one here."""

import math
from typing import Any

import pytest

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.iteration import ScheduleChoice, TrainingRun, estimate
from dtk.pipeline.iteration.stages import stage_costs, stage_times
from dtk.workload.states import Sharding
from tests.costmodel.machines import RATES, chip_of, constants_of, machine_of_figures, stack_of
from tests.pipeline.iteration.runs import run_of, shape_of

TOKENS, HIDDEN, VOCABULARY = 48, 32, 100
LAYER_FORWARD = 2 * TOKENS * 12 * HIDDEN**2 + 2 * (2 * 2 * 24 * 24 * HIDDEN)
LAYER_BACKWARD = 2 * LAYER_FORWARD
LOGITS = 2 * TOKENS * HIDDEN * VOCABULARY
LAYER_PARAMETERS = 12 * HIDDEN**2 + 13 * HIDDEN
EMBEDDING = VOCABULARY * HIDDEN
PEAK = 1e9
"""FLOP/s, so that times stay below the quarter of an hour that an action may take."""


def costs_of(**changes: Any) -> StageCosts:
    return stage_costs(run_of(**changes))


def computing(**figures: Any) -> Any:
    chip = chip_of(peak=PEAK, memory_bytes_per_s=math.inf)
    return machine_of_figures(**({"chip": chip, **dict.fromkeys(RATES, math.inf)} | figures))


def moving(**figures: Any) -> Any:
    """Compute for free; device memory and links move a byte in a microsecond."""
    chip = chip_of(peak=math.inf, memory_bytes_per_s=1e6)
    return machine_of_figures(**({"chip": chip, **dict.fromkeys(RATES, 1e6)} | figures))


def test_compute_of_the_stages() -> None:
    layout = {"pipeline_parallel": 2}
    costs = costs_of(layout=layout, machine=computing(chips_per_node=2))
    assert costs.forward_ns == (2 * LAYER_FORWARD, 2 * LAYER_FORWARD + LOGITS)
    backwards = [i + w for i, w in zip(costs.input_grad_ns, costs.weight_grad_ns, strict=True)]
    assert backwards == [2 * LAYER_BACKWARD, 2 * LAYER_BACKWARD + 2 * LOGITS]
    # Uneven stages are not averaged.
    uneven = costs_of(layout=layout, machine=computing(chips_per_node=2), layers_per_stage=(3, 1))
    assert uneven.forward_ns == (3 * LAYER_FORWARD, LAYER_FORWARD + LOGITS)


def test_the_host_s_part_of_a_micro_batch_is_shared_by_the_chunks() -> None:
    stack = stack_of(host_micro_batch_s=0.5, host_iteration_s=0.25)
    machine = computing(chip=chip_of(peak=math.inf, memory_bytes_per_s=math.inf))
    for chunks in (1, 2, 4):
        schedule = ScheduleChoice("bfs")
        costs = costs_of(layout={"chunks": chunks}, machine=machine, stack=stack, schedule=schedule)
        assert sum(costs.forward_ns) == 5 * 10**8
        assert sum(costs.optimizer_ns) == 25 * 10**7
        assert set(costs.input_grad_ns + costs.weight_grad_ns) == {0}


@pytest.mark.parametrize("tensor_parallel", [1, 2])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_messages_between_stages(tensor_parallel: int, sequence_parallel: bool) -> None:
    """Each tensor-parallel rank sends its part; without sequence parallelism the receivers gather."""
    layout = {
        "pipeline_parallel": 4,
        "tensor_parallel": tensor_parallel,
        "sequence_parallel": sequence_parallel,
    }
    state = 2 * TOKENS * HIDDEN
    stack = stack_of(transfer_s=0.5)
    costs = costs_of(layout=layout, machine=moving(chips_per_node=4 * tensor_parallel), stack=stack)
    gathered = state / 2 if tensor_parallel == 2 and not sequence_parallel else 0
    expected = round(1e3 * (state / tensor_parallel + gathered)) + 5 * 10**8
    assert costs.activation_transfer_ns == (expected,) * 3 + (0,)
    assert costs.gradient_transfer_ns == (0,) + (expected,) * 3
    assert set(costs.activation_message_bytes) == {state // tensor_parallel}


def test_only_the_boundary_between_nodes_pays_the_network() -> None:
    """Four pipeline ranks of two on two nodes of four: the two that cross share the node's NICs."""
    layout = {"pipeline_parallel": 4, "data_parallel": 2}
    rates = {"pair_bytes_per_s": 1e9, "network_bytes_per_s": 2e6, "chip_network_bytes_per_s": 1e6}
    machine = moving(num_nodes=2, chips_per_node=4, **rates)
    state = 2 * TOKENS * HIDDEN
    costs = costs_of(layout=layout, machine=machine)
    assert costs.activation_transfer_ns == (state, 1000 * state, state, 0)
    assert costs.gradient_transfer_ns == (0, state, 1000 * state, state)
    # A node for each pipeline rank: all four chips of a node send, and share it.
    layout = {"pipeline_parallel": 2, "data_parallel": 4}
    assert costs_of(layout=layout, machine=machine).activation_transfer_ns == (2000 * state, 0)


def test_a_v_hands_over_on_the_spot() -> None:
    run = run_of(
        layout={"pipeline_parallel": 2, "chunks": 2},
        machine=moving(chips_per_node=2),
        schedule=ScheduleChoice("zb-v"),
    )
    sent = estimate(run).costs.activation_transfer_ns
    assert sent[1] == 0
    assert sent[0] == sent[2] > 0


def optimizer_bytes(parameters: float, gradient_shards: int = 1, optimizer_shards: int = 1) -> float:
    """fp32 gradients read twice and cleared; 12 bytes of states read and written, 2 of weights written."""
    return 3 * 4 * parameters / gradient_shards + (2 * 12 + 2) * parameters / optimizer_shards


def synchronised(sharding: Sharding, data_parallel: int, **changes: Any) -> float:
    """Bytes that the optimizer step and what it waits for move, at a byte a microsecond."""
    run = run_of(
        layout={"data_parallel": data_parallel},
        machine=moving(chips_per_node=data_parallel),
        sharding=sharding,
        **changes,
    )
    return sum(stage_costs(run).optimizer_ns) / 1e3


def test_what_the_optimizer_step_waits_for() -> None:
    """Sums over four ranks are 2 * 3/4 of the bytes, gathers and scatters 3/4."""
    whole = 4 * LAYER_PARAMETERS + EMBEDDING + 2 * HIDDEN
    (stage,) = stage_times(run_of())
    assert stage.parameters.per_rank == whole
    assert synchronised(Sharding(), 1) == pytest.approx(optimizer_bytes(whole), abs=0.01)
    plain = optimizer_bytes(whole) + 2 * 0.75 * 4 * whole
    assert synchronised(Sharding(), 4) == pytest.approx(plain, abs=0.01)
    # The optimizer sharded over all: gradients scattered in fp32, weights gathered in 16 bits.
    first = optimizer_bytes(whole, 1, 4) + 0.75 * 4 * whole + 0.75 * 2 * whole
    assert synchronised(Sharding(1, 4), 4) == pytest.approx(first, abs=0.01)
    # Over pairs, whose two replicas sum halves of the gradients.
    pairs = optimizer_bytes(whole, 1, 2) + 0.5 * 4 * whole + 0.5 * 2 * whole + 2 * 0.5 * 4 * whole / 2
    assert synchronised(Sharding(1, 2), 4) == pytest.approx(pairs, abs=0.01)
    # Everything sharded over all: only the step is left, the schedule has scattered and gathered.
    bfs = ScheduleChoice("bfs")
    assert synchronised(Sharding(3, 4), 4, schedule=bfs) == pytest.approx(
        optimizer_bytes(whole, 4, 4), abs=0.01
    )
    # Over pairs: replicas sum their shards, or scatter and gather them if they shard the optimizer further.
    hybrid = optimizer_bytes(whole, 2, 2) + 2 * 0.5 * 4 * whole / 2
    assert synchronised(Sharding(3, 2), 4, schedule=bfs) == pytest.approx(hybrid, abs=0.01)
    further = optimizer_bytes(whole, 2, 4) + 0.5 * 4 * whole / 2 + 0.5 * 2 * whole / 2
    assert synchronised(Sharding(3, 2, 2), 4, schedule=bfs) == pytest.approx(further, abs=0.01)


def test_gathers_and_reductions_of_a_sharded_stage() -> None:
    layout = {"data_parallel": 4, "chunks": 4}
    run = run_of(
        layout=layout,
        machine=moving(chips_per_node=4, chip=chip_of(peak=math.inf, memory_bytes_per_s=math.inf)),
        sharding=Sharding(3, 4),
        schedule=ScheduleChoice("bfs"),
    )
    costs = stage_costs(run)
    # A layer that computes in no time waits for all of its 16-bit weights; gradients are scattered in fp32.
    assert costs.unshard_ns[1] == round(1e3 * 0.75 * 2 * LAYER_PARAMETERS)
    assert costs.reduce_grad_ns[1] == round(1e3 * 0.75 * 4 * LAYER_PARAMETERS)
    assert costs.parameter_bytes[1] == 2 * LAYER_PARAMETERS
    assert costs.gradient_bytes[1] == 4 * LAYER_PARAMETERS


def test_a_tied_embedding_is_summed_by_the_first_and_the_last_stage() -> None:
    tied, free = (
        costs_of(
            shape=shape_of(tied_embeddings=tied),
            layout={"pipeline_parallel": 4},
            machine=moving(chips_per_node=4),
        ).optimizer_ns
        for tied in (True, False)
    )
    more = [with_tie - without for with_tie, without in zip(tied, free, strict=True)]
    assert more == [1000 * 4 * EMBEDDING, 0, 0, 1000 * 4 * EMBEDDING]


@pytest.mark.parametrize("kept", [False, True])
def test_the_last_chunk_may_keep_its_activations(kept: bool) -> None:
    run: TrainingRun = run_of(
        layout={"pipeline_parallel": 2},
        machine=computing(chips_per_node=2, constants=constants_of()),
        job={"recomputation": "full"},
        keep_last_chunk=kept,
    )
    costs = stage_costs(run)
    backwards = [i + w for i, w in zip(costs.input_grad_ns, costs.weight_grad_ns, strict=True)]
    again = 2 * LAYER_FORWARD
    assert backwards == [2 * LAYER_BACKWARD + again, 2 * LAYER_BACKWARD + 2 * LOGITS + (0 if kept else again)]
    assert (costs.activation_bytes[1] > costs.activation_bytes[0]) == kept
