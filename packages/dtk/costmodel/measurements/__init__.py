"""Published measurements that cost models are checked against: tables of facts with source and licence."""

from dtk.costmodel.measurements.reading import published_sets
from dtk.costmodel.measurements.records import (
    LayerProfile,
    MeasuredMemory,
    MeasuredRun,
    PublishedSet,
    Replica,
    StageTimes,
)
from dtk.costmodel.measurements.tables import (
    internevo_7b,
    korthikanti,
    korthikanti_memory,
    megatron_memory,
    megatron_ptd_and_zero3,
    megatron_weak_scaling,
    mt_nlg,
    sailor_layer_profiles,
    sailor_plans,
    torchtitan,
    v100_a100_pair,
    vtrain_multi_node,
    vtrain_single_node,
    zero_bubble,
    zero_bubble_stages,
)

__all__ = [
    "LayerProfile",
    "MeasuredMemory",
    "MeasuredRun",
    "PublishedSet",
    "Replica",
    "StageTimes",
    "internevo_7b",
    "korthikanti",
    "korthikanti_memory",
    "megatron_memory",
    "megatron_ptd_and_zero3",
    "megatron_weak_scaling",
    "mt_nlg",
    "published_sets",
    "sailor_layer_profiles",
    "sailor_plans",
    "torchtitan",
    "v100_a100_pair",
    "vtrain_multi_node",
    "vtrain_single_node",
    "zero_bubble",
    "zero_bubble_stages",
]
