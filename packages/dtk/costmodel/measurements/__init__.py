"""Published measurements that cost models are checked against: tables of facts with source and licence."""

from dtk.costmodel.measurements.reading import (
    internevo_7b,
    korthikanti,
    korthikanti_memory,
    megatron_ptd_and_zero3,
    megatron_weak_scaling,
    mt_nlg,
    published_sets,
    v100_a100_pair,
    vtrain_multi_node,
    vtrain_single_node,
)
from dtk.costmodel.measurements.records import MeasuredMemory, MeasuredRun, PublishedSet

__all__ = [
    "MeasuredMemory",
    "MeasuredRun",
    "PublishedSet",
    "internevo_7b",
    "korthikanti",
    "korthikanti_memory",
    "megatron_ptd_and_zero3",
    "megatron_weak_scaling",
    "mt_nlg",
    "published_sets",
    "v100_a100_pair",
    "vtrain_multi_node",
    "vtrain_single_node",
]
