"""The packaged tables of published measurements, each read once."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from dtk.costmodel.measurements.reading import memory_of, published_sets, rows_of, runs_of, shape_of, table
from dtk.costmodel.measurements.records import (
    LayerPart,
    LayerProfile,
    MeasuredMemory,
    MeasuredRun,
    StageTimes,
)

__all__ = [
    "internevo_7b",
    "korthikanti",
    "korthikanti_memory",
    "megatron_memory",
    "megatron_ptd_and_zero3",
    "megatron_weak_scaling",
    "mt_nlg",
    "sailor_layer_profiles",
    "sailor_plans",
    "torchtitan",
    "v100_a100_pair",
    "vtrain_multi_node",
    "vtrain_single_node",
    "zero_bubble",
    "zero_bubble_stages",
]

_PARTS: Final[Mapping[int, LayerPart]] = MappingProxyType({0: "embedding", 1: "layer", 25: "head"})


@cache
def vtrain_multi_node() -> tuple[MeasuredRun, ...]:
    """Return GPTs of 3.6, 18.4 and 175 billion parameters on 64 to 512 A100s (vTrain, MICRO 2024)."""
    return runs_of("vtrain_multi_node")


@cache
def vtrain_single_node() -> tuple[MeasuredRun, ...]:
    """Return small GPTs inside one node of A100s (vTrain, MICRO 2024)."""
    return runs_of("vtrain_single_node")


@cache
def korthikanti() -> tuple[MeasuredRun, ...]:
    """Return GPTs of 22B to 1T with full, and with selective recomputation (arXiv 2205.05198)."""
    return runs_of("korthikanti")


@cache
def korthikanti_memory() -> tuple[MeasuredMemory, ...]:
    """Return the bytes of the same GPTs by technique: published, but by the paper's formulas."""
    return memory_of("korthikanti_memory")


@cache
def megatron_weak_scaling() -> tuple[MeasuredRun, ...]:
    """Return GPTs of 1.7B to 1T on 32 to 3072 A100s (arXiv 2104.04473, table 1)."""
    return runs_of("megatron_weak_scaling")


@cache
def megatron_ptd_and_zero3() -> tuple[MeasuredRun, ...]:
    """Return two GPTs under pipelines and under ZeRO-3 alone (arXiv 2104.04473, table 2)."""
    return runs_of("megatron_ptd_and_zero3")


@cache
def mt_nlg() -> tuple[MeasuredRun, ...]:
    """Return MT-NLG 530B on 2240 to 3360 A100s (arXiv 2201.11990)."""
    return runs_of("mt_nlg")


@cache
def v100_a100_pair() -> tuple[MeasuredRun, ...]:
    """Return four GPTs on V100s and on A100s, with the same code."""
    return runs_of("v100_a100_pair")


@cache
def internevo_7b() -> tuple[MeasuredRun, ...]:
    """Return a 7B model under data parallelism with sharded optimizer states, on 8 to 1024 A100s."""
    return runs_of("internevo_7b")


@cache
def torchtitan() -> tuple[MeasuredRun, ...]:
    """Return Llama 3.1 of 8B, 70B and 405B under FSDP2 with tensor and pipeline parallelism, on H100s."""
    return runs_of("torchtitan")


@cache
def megatron_memory() -> tuple[MeasuredMemory, ...]:
    """Return the measured peak of memory of Llama-2 7B on one node of H800s."""
    return memory_of("megatron_memory")


@cache
def sailor_plans() -> tuple[MeasuredRun, ...]:
    """Return whole plans of OPT-350M on unlike RTX cards and on GH200s (SAILOR, SOSP 2025)."""
    return runs_of("sailor_plans")


@cache
def sailor_layer_profiles() -> tuple[LayerProfile, ...]:
    """Return the times of OPT-350M's layers on seven chips (SAILOR, SOSP 2025)."""
    name = "sailor_layer_profiles"
    chips = table(name)["chips"]
    return tuple(
        LayerProfile(
            source=published_sets()[name],
            shape=shape_of(row),
            chip=chips[row["chip"]],
            part=_PARTS[row["layer"]],
            micro_batch=row["micro_batch"],
            sequence_tokens=row["sequence_tokens"],
            tensor_parallel=row["tensor_parallel"],
            precision=row["precision"],
            forward_s=row["forward_s"],
            backward_s=row["backward_s"],
            update_s=row["update_s"],
        )
        for row in rows_of(name)
    )


@cache
def zero_bubble() -> tuple[MeasuredRun, ...]:
    """Return GPTs of 1.5B to 28.3B under four pipeline schedules on 8 to 32 A100s (arXiv 2401.10241)."""
    return runs_of("zero_bubble")


@cache
def zero_bubble_stages() -> tuple[StageTimes, ...]:
    """Return the times of one stage and micro-batch of the same GPTs."""
    name = "zero_bubble_stages"
    return tuple(
        StageTimes(
            source=published_sets()[name],
            model=row["profile"],
            num_ranks=row["pipeline_parallel"],
            num_microbatches=row["num_microbatches"],
            micro_batch=row["micro_batch"],
            forward_s=row["forward_ms"] * 1e-3,
            input_gradient_s=row["input_gradient_ms"] * 1e-3,
            weight_gradient_s=row["weight_gradient_ms"] * 1e-3,
            transfer_s=row["transfer_ms"] * 1e-3,
        )
        for row in rows_of(name)
    )
