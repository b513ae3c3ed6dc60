"""Machines with figures of one's own, and any that hypothesis thinks of."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dtk.costmodel.collectives import Communication
from dtk.costmodel.constants import ChipConstants, Constant, StackConstants
from dtk.costmodel.machine import Machine
from dtk.costmodel.roofline import Roofline
from dtk.hardware.catalogue import packaged_catalogue
from dtk.hardware.model import Chip, Peaks

_ORIGIN = Constant(origin="estimate", source="a test")

RATES = ["fabric_bytes_per_s", "pair_bytes_per_s", "network_bytes_per_s", "chip_network_bytes_per_s"]
LATENCIES = ["fabric_latency_s", "network_latency_s"]
STACK_TIMES = [
    "host_layer_s",
    "host_collective_s",
    "host_micro_batch_s",
    "host_iteration_s",
    "collective_s",
    "transfer_s",
]


def chip_of(**figures: Any) -> Chip:
    """A chip that computes a FLOP in a second and moves a byte in a second, unless told otherwise."""
    peak = figures.pop("peak", 1.0)
    figures.setdefault("memory_bytes_per_s", 1.0)
    peaks = Peaks.model_construct(**dict.fromkeys(Peaks.model_fields, peak))
    return packaged_catalogue().chip("A100-SXM-80GB").model_copy(update={"peak_flop_per_s": peaks} | figures)


def constants_of(**shares: float) -> ChipConstants:
    """Everything is reached, and nothing takes time besides, unless told otherwise."""
    ideal: dict[str, Any] = dict.fromkeys(set(ChipConstants.model_fields) - {"name", "chips", "origins"}, 1.0)
    ideal |= {"matmul_half_depth": 0.0, "kernel_s": 0.0}
    ideal = {key: 0.0 if key.endswith("_s") else value for key, value in ideal.items()} | shares
    origins = dict.fromkeys(ideal, _ORIGIN)
    return ChipConstants(name="test", chips=(), origins=origins, **ideal)


def stack_of(**times: Any) -> StackConstants:
    """Software that takes no time, unless told otherwise."""
    ideal: dict[str, Any] = dict.fromkeys(set(StackConstants.model_fields) - {"name", "origins"}, 0.0)
    ideal |= {"overlap_tensor_parallel": False, "stream_factor": 1.0} | times
    return StackConstants(name="test", origins=dict.fromkeys(ideal, _ORIGIN), **ideal)


def machine_of_figures(**figures: Any) -> Machine:
    """Nodes whose links carry a byte in a second, without latency, unless told otherwise."""
    defaults: dict[str, Any] = {
        "name": "test",
        "chip": chip_of(),
        "num_nodes": 1,
        "chips_per_node": 1,
        "constants": constants_of(),
        **dict.fromkeys(RATES, 1.0),
        **dict.fromkeys(LATENCIES, 0.0),
    }
    return Machine(**(defaults | figures))


def roofline_of(machine: Machine, element_bytes: int = 2) -> Roofline:
    return Roofline(machine.chip, machine.constants, "bf16", element_bytes)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Small machines of all shapes, rates and latencies of real hardware within a few orders."""
    rates = st.floats(1e9, 1e12)
    chips = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16]))
    pair = draw(rates)
    network = draw(rates)
    shares = st.floats(0.05, 1.0)
    names = [
        "matmul_share",
        "attention_share",
        "memory_share",
        "fabric_share",
        "network_share",
    ]
    constants = constants_of(
        **{name: draw(shares) for name in names},
        matmul_half_depth=draw(st.floats(0, 1000)),
        kernel_s=draw(st.floats(0, 1e-4)),
    )
    return Machine(
        name="any",
        chip=chip_of(peak=draw(st.floats(1e13, 1e15)), memory_bytes_per_s=draw(st.floats(1e11, 1e13))),
        num_nodes=draw(st.integers(1, 4)),
        chips_per_node=chips,
        fabric_bytes_per_s=pair * draw(st.floats(1, chips)),
        pair_bytes_per_s=pair,
        fabric_latency_s=draw(st.floats(0, 1e-4)),
        network_bytes_per_s=network,
        chip_network_bytes_per_s=network * draw(st.floats(1 / chips, 1)),
        network_latency_s=draw(st.floats(0, 1e-4)),
        constants=constants,
    )


@st.composite
def stacks(draw: st.DrawFn) -> StackConstants:
    return stack_of(
        **{name: draw(st.floats(0, 1e-2)) for name in STACK_TIMES},
        overlap_tensor_parallel=draw(st.booleans()),
        overlap_data_parallel=draw(st.floats(0, 1)),
        overlap_slowdown=draw(st.floats(0, 1)),
        stream_factor=draw(st.floats(1, 5)),
        selective_products=draw(st.floats(0, 1)),
    )


def slower(machine: Machine, what: str, factor: float) -> Machine:
    """Return the machine with one rate divided by `factor`."""
    if what == "memory_bytes_per_s":
        rate = machine.chip.memory_bytes_per_s / factor
        return replace(machine, chip=machine.chip.model_copy(update={what: rate}))
    if what == "peak":
        peaks = {name: None if rate is None else rate / factor for name, rate in machine.chip.peak_flop_per_s}
        update = {"peak_flop_per_s": Peaks.model_construct(**peaks)}
        return replace(machine, chip=machine.chip.model_copy(update=update))
    if what.endswith("_share"):
        share = getattr(machine.constants, what) / factor
        return replace(machine, constants=machine.constants.model_copy(update={what: share}))
    return replace(machine, **{what: getattr(machine, what) / factor})


def communication_of(machine: Machine, stack: StackConstants | None = None) -> Communication:
    return Communication(machine, stack or stack_of())
