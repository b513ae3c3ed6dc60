"""The published memory of activations and states, against the formulas that they come from."""

import pytest

from dtk.costmodel.measurements import MeasuredMemory, korthikanti, korthikanti_memory, megatron_memory
from dtk.workload.activations import in_flight_chunks, layer_activation_bytes
from dtk.workload.parameters import count_parameters
from dtk.workload.states import state_bytes

ROWS = korthikanti_memory()
PRINTED = [row for row in ROWS if row.activation_bytes is not None]


def test_all_rows_are_there() -> None:
    assert len(ROWS) == 20
    assert len(PRINTED) == 8
    assert {row.source.basis for row in ROWS} == {"analytic"}
    assert {row.shape.name for row in ROWS} == {run.shape.name for run in korthikanti()}


def layers_bytes(row: MeasuredMemory) -> int:
    layers = row.shape.num_layers // row.layout.num_stages
    chunks = in_flight_chunks(row.layout.pipeline_parallel, 0, row.layout.chunks, row.num_microbatches)
    return chunks * layers * layer_activation_bytes(row.shape, row.job.activation_settings(row.layout))


@pytest.mark.parametrize("row", PRINTED, ids=lambda row: row.name)
def test_activations_are_the_papers_formula(row: MeasuredMemory) -> None:
    # Printed to a hundredth of a GiB.
    assert layers_bytes(row) == pytest.approx(row.activation_bytes, abs=0.006 * 2**30)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_shares_and_states_follow_from_the_sizes(row: MeasuredMemory) -> None:
    whole = next(one for one in ROWS if one.shape == row.shape and one.activation_share == 1)
    assert row.activation_share is not None
    assert layers_bytes(row) / layers_bytes(whole) == pytest.approx(row.activation_share, abs=0.002)
    matrices = 12 * row.shape.num_layers * row.shape.hidden_size**2 / row.num_chips
    assert row.model_states_bytes == pytest.approx(18 * matrices, abs=0.006 * 2**30)


def test_printed_bytes_and_shares_agree() -> None:
    for row in PRINTED:
        whole = next(one for one in PRINTED if one.shape == row.shape and one.activation_share == 1)
        assert row.activation_bytes is not None
        assert whole.activation_bytes is not None
        assert row.activation_bytes / whole.activation_bytes == pytest.approx(row.activation_share, abs=0.001)


def test_the_measured_peaks_hold_the_states_and_the_activations() -> None:
    for row in megatron_memory():
        assert row.peak_memory_bytes is not None
        assert row.estimated_memory_bytes == pytest.approx(row.peak_memory_bytes, rel=0.01)
        layout, precision = row.layout, row.job.precision
        parameters = count_parameters(row.shape) // layout.pipeline_parallel // layout.tensor_parallel
        states = state_bytes(parameters, precision, row.sharding).total_bytes
        # Logits in 16 bits and in fp32 on the last stage alone, and workspace, come on top.
        assert 0.88 < (states + layers_bytes(row)) / row.peak_memory_bytes < 1
