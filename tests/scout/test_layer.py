"""The decode step over two tiers against a literal reading of the algorithm."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk.scout.config import ScoutConfig
from dtk.scout.host import HostWorker
from dtk.scout.layer import OffloadedLayer
from dtk.scout.layout import BatchLayout
from dtk.scout.policies import RecallTimer
from tests.scout.oracle import OracleRow

SCALE = 0.3


@pytest.fixture(scope="module")
def host() -> Iterator[HostWorker]:
    with HostWorker(1) as worker:
        yield worker


@st.composite
def cases(draw: st.DrawFn) -> dict[str, object]:
    block_size = draw(st.integers(1, 5))
    sink, recent = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    return {
        "tokens": draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)),
        "block_size": block_size,
        "budget": draw(st.integers(max(sink + recent, 1), 6)),
        "sink": sink,
        "recent": recent,
        "kv_heads": draw(st.integers(1, 3)),
        "group": draw(st.integers(1, 3)),
        "head_size": draw(st.sampled_from([2, 4, 7])),
        "interval": draw(st.sampled_from([None, 1, 2, 5])),
        "phase": draw(st.integers(0, 3)),
        "scope": draw(st.sampled_from(["resident", "selected"])),
        "selection": draw(st.sampled_from(["layer", "kv_head"])),
        "reduction": draw(st.sampled_from(["sum", "max"])),
        "host_query": draw(st.sampled_from(["predicted", "real"])),
        "predict": draw(st.booleans()),
        "reserve": draw(st.sampled_from([0, 3, 30])),
        "seed": draw(st.integers(0, 2**31)),
    }


def _rows(x: torch.Tensor, rows_per_sequence: int) -> np.ndarray:
    """[batch, heads, head size] -> [rows, heads of a row, head size]."""
    return x.reshape(x.shape[0] * rows_per_sequence, -1, x.shape[2]).numpy().astype(np.float64)


@given(case=cases())
@settings(max_examples=120)
def test_decode_steps_equal_the_algorithm_in_fp64(case: dict, host: HostWorker) -> None:
    generator = torch.Generator().manual_seed(case["seed"])
    tokens, kv_heads, head_size = case["tokens"], case["kv_heads"], case["head_size"]
    heads, batch, padded = kv_heads * case["group"], len(tokens), max(tokens)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    config = ScoutConfig(
        budget_tokens=case["budget"] * case["block_size"],
        block_size=case["block_size"],
        sink_blocks=case["sink"],
        recent_blocks=case["recent"],
        device_scope=case["scope"],
        selection=case["selection"],
        score_reduction=case["reduction"],
        host_query=case["host_query"],
        recall_interval=case["interval"],
    )
    per_sequence = kv_heads if case["selection"] == "kv_head" else 1
    timer = RecallTimer(case["interval"], case["phase"])
    layer = OffloadedLayer(config, host, SCALE, timer, case["reserve"])
    keys, values = random(batch, kv_heads, padded, head_size), random(batch, kv_heads, padded, head_size)
    last_query = random(batch, heads, head_size)
    layout = BatchLayout([padded - n for n in tokens], list(tokens), per_sequence)
    layer.prefill(keys, values, last_query, layout)
    oracles = []
    for row in range(batch * per_sequence):
        sequence, part = divmod(row, per_sequence)
        of_row = slice(part * kv_heads // per_sequence, (part + 1) * kv_heads // per_sequence)
        real = [x[sequence, of_row, padded - tokens[sequence] :].transpose(0, 1) for x in (keys, values)]
        oracle = OracleRow(
            *(x.numpy().astype(np.float64) for x in real),
            block_size=case["block_size"],
            budget=case["budget"],
            sink=case["sink"],
            recent=case["recent"],
            interval=case["interval"],
            scope=case["scope"],
            phase=case["phase"],
            reduce_max=case["reduction"] == "max",
        )
        oracle.prefill(_rows(last_query, per_sequence)[row])
        oracles.append(oracle)

    for _ in range(3 * case["block_size"] + 6):
        query, key, value = random(batch, heads, head_size), *random(2, batch, kv_heads, head_size)
        predicted = query + 0.5 * random(batch, heads, head_size) if case["predict"] else query
        if case["predict"]:
            layer.predict(predicted)
        chosen, capacity = layer._selection, layer.host_tier.capacity
        output = _rows(layer.attend(query, key, value), per_sequence)
        host_query = predicted if case["host_query"] == "predicted" else query
        for row, oracle in enumerate(oracles):
            expected = oracle.step(
                *(_rows(x, per_sequence)[row] for x in (query, predicted, host_query, key, value)), SCALE
            )
            np.testing.assert_allclose(output[row], expected.output, rtol=1e-4, atol=1e-5)
            if chosen is not None and chosen.partial is not None:
                table = chosen.partial.block_table[row, 0]
                on_host = {int(i) - row * capacity for i in table if i >= 0}
                assert on_host == expected.on_host
    layer.settle()
    for row, oracle in enumerate(oracles):
        held = layer.device_tier.block_of_slot[row]
        assert {int(b) for b in held if b >= 0} == oracle.resident
