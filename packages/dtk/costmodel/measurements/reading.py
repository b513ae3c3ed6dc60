"""Reads the tables of published measurements: a CSV file each, and `sets.toml` for what its rows share.

Column names are the fields that they fill, with the unit that is printed: `iteration_ms`, `chip_tflop_per_s`.
An empty cell was not printed.
"""

import csv
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from dtk.costmodel.measurements.records import MeasuredMemory, MeasuredRun, PublishedSet
from dtk.workload import Layout, TrainingJob, TransformerShape, load_shape
from dtk.workload.states import Sharding

__all__ = [
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

Row = Mapping[str, Any]

# Columns that stand for a field in other units: the field, and by what the cell is multiplied.
_UNITS: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        "iteration_s": ("iteration_s", 1.0),
        "iteration_ms": ("iteration_s", 1e-3),
        "chip_tflop_per_s": ("chip_flop_per_s", 1e12),
        "chip_tokens_per_s": ("chip_tokens_per_s", 1.0),
        "model_states_gib": ("model_states_bytes", 2.0**30),
        "activations_gib": ("activation_bytes", 2.0**30),
        "activations_percent_of_none": ("activation_share", 1e-2),
    }
)
# Printed beside what the other columns say already; the tests compare them.
_CHECKS: Final = frozenset({"parameters_b", "num_chips", "cluster_pflop_per_s", "days_of_300b_tokens"})
_TEXT: Final = frozenset({"model", "node", "schedule", "recomputation"})
_SHAPE: Final = ("family", "hidden_size", "num_heads", "num_layers", "vocab_size", "learned_positions")
_JOB: Final = (
    "global_batch",
    "sequence_tokens",
    "micro_batch",
    "recipe",
    "recomputation",
    "flash_attention",
    "dropout",
)
_LAYOUT: Final = ("data_parallel", "tensor_parallel", "pipeline_parallel", "chunks", "sequence_parallel")


def vtrain_multi_node() -> tuple[MeasuredRun, ...]:
    """Return GPTs of 3.6, 18.4 and 175 billion parameters on 64 to 512 A100s (vTrain, MICRO 2024)."""
    return _runs("vtrain_multi_node")


def vtrain_single_node() -> tuple[MeasuredRun, ...]:
    """Return small GPTs inside one node of A100s (vTrain, MICRO 2024)."""
    return _runs("vtrain_single_node")


def korthikanti() -> tuple[MeasuredRun, ...]:
    """Return GPTs of 22B to 1T with full, and with selective recomputation (arXiv 2205.05198)."""
    return _runs("korthikanti")


@cache
def korthikanti_memory() -> tuple[MeasuredMemory, ...]:
    """Return the bytes of the same GPTs by technique: published, but by the paper's formulas."""
    return tuple(
        MeasuredMemory(**_setting("korthikanti_memory", row), **_figures(row))
        for row in _rows("korthikanti_memory")
    )


def megatron_weak_scaling() -> tuple[MeasuredRun, ...]:
    """Return GPTs of 1.7B to 1T on 32 to 3072 A100s (arXiv 2104.04473, table 1)."""
    return _runs("megatron_weak_scaling")


def megatron_ptd_and_zero3() -> tuple[MeasuredRun, ...]:
    """Return two GPTs under pipelines and under ZeRO-3 alone (arXiv 2104.04473, table 2)."""
    return _runs("megatron_ptd_and_zero3")


def mt_nlg() -> tuple[MeasuredRun, ...]:
    """Return MT-NLG 530B on 2240 to 3360 A100s (arXiv 2201.11990)."""
    return _runs("mt_nlg")


def v100_a100_pair() -> tuple[MeasuredRun, ...]:
    """Return four GPTs on V100s and on A100s, with the same code."""
    return _runs("v100_a100_pair")


def internevo_7b() -> tuple[MeasuredRun, ...]:
    """Return a 7B model under data parallelism with sharded optimizer states, on 8 to 1024 A100s."""
    return _runs("internevo_7b")


@cache
def published_sets() -> Mapping[str, PublishedSet]:
    """Return what each table is, by name."""
    return MappingProxyType({name: _about(name, values) for name, values in _tables().items()})


def _about(name: str, values: Mapping[str, Any]) -> PublishedSet:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in values.items()
        if key != "shared"
    }
    return PublishedSet(name=name, **fields)


@cache
def _tables() -> Mapping[str, dict[str, Any]]:
    return tomllib.loads(_text("sets.toml"))


def _text(file: str) -> str:
    return (resources.files("dtk.costmodel.measurements") / file).read_text(encoding="utf-8")


def _rows(name: str) -> Iterator[Row]:
    """Yield the rows of a table, with what they share; cells that are empty are left out."""
    shared = _tables()[name].get("shared", {})
    for row in csv.DictReader(_text(f"{name}.csv").splitlines(), strict=True):
        yield shared | {column: _value(column, cell) for column, cell in row.items() if cell}


def _value(column: str, cell: str) -> Any:
    if column in _TEXT:
        return cell
    if column in _UNITS or column in _CHECKS:
        return float(cell)
    return {"true": True, "false": False}[cell] if cell in {"true", "false"} else int(cell)


@cache
def _runs(name: str) -> tuple[MeasuredRun, ...]:
    runs = []
    seen: dict[str, int] = {}
    for row in _rows(name):
        setting = _setting(name, row)
        seen[setting["name"]] = seen.get(setting["name"], 0) + 1
        # The same setting was measured more than once.
        if seen[setting["name"]] > 1:
            setting["name"] += f" #{seen[setting['name']]}"
        counting = row.get("flop_counting") if "chip_tflop_per_s" in row else None
        runs.append(MeasuredRun(**setting, **_figures(row), flop_counting=counting))
    return tuple(runs)


def _figures(row: Row) -> dict[str, Any]:
    """Return what was measured in one row, in base units."""
    figures: dict[str, Any] = {}
    for column in row.keys() & _UNITS.keys():
        field, unit = _UNITS[column]
        figures[field] = round(row[column] * unit) if field.endswith("_bytes") else row[column] * unit
    return figures


def _setting(name: str, row: Row) -> dict[str, Any]:
    """Return what ran in one row: the fields that all records have."""
    job = TrainingJob.from_values(_picked(row, _JOB))
    layout = Layout.model_validate(_picked(row, _LAYOUT))
    sharding = Sharding(row.get("sharding_stage", 0), row.get("sharding_ranks", 1))
    shape = load_shape(row["model"]) if "model" in row else _shape(**_picked(row, _SHAPE))
    return {
        "source": published_sets()[name],
        "name": _name(shape, job, layout, sharding, row["node"]),
        "shape": shape,
        "job": job,
        "layout": layout,
        "sharding": sharding,
        "schedule": row["schedule"],
        "precision": row["precision"],
        "node": row["node"],
    }


def _picked(row: Row, fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: row[field] for field in fields if field in row}


@cache
def _shape(**sizes: Any) -> TransformerShape:
    name = f"gpt-h{sizes['hidden_size']}-l{sizes['num_layers']}"
    return TransformerShape.from_values({"name": name, **sizes})


def _name(shape: TransformerShape, job: TrainingJob, layout: Layout, sharding: Sharding, node: str) -> str:
    parts = [
        shape.name,
        f"tp{layout.tensor_parallel} dp{layout.data_parallel} pp{layout.pipeline_parallel}",
        f"chunks{layout.chunks}" if layout.chunks > 1 else "",
        f"zero{sharding.stage}x{sharding.ranks}" if sharding.stage else "",
        f"b{job.micro_batch} of {job.global_batch}",
        job.recomputation,
        "sp" if layout.sequence_parallel else "",
        f"on {node}",
    ]
    return " ".join(part for part in parts if part)
