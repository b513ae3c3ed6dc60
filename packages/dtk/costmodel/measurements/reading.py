"""Reads tables of measurements: a CSV file each, and `sets.toml` for what its rows share.

Column names are the fields that they fill, with the unit that is printed: `iteration_ms`, `chip_tflop_per_s`.
An empty cell was not printed.
"""

import csv
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from dtk.costmodel.measurements.records import MeasuredMemory, MeasuredRun, PublishedSet, Replica
from dtk.errors import InputError
from dtk.workload import Layout, TrainingJob, TransformerShape, load_shape
from dtk.workload.states import Sharding

__all__ = ["memory_of", "published_sets", "rows_of", "runs_of", "shape_of", "table"]

Row = Mapping[str, Any]

# Columns of figures: the field, and by what the cell is multiplied.
_UNITS: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        "iteration_s": ("iteration_s", 1.0),
        "iteration_ms": ("iteration_s", 1e-3),
        "chip_tflop_per_s": ("chip_flop_per_s", 1e12),
        "chip_tokens_per_s": ("chip_tokens_per_s", 1.0),
        "peak_memory_bytes": ("peak_memory_bytes", 1.0),
        "peak_memory_gb": ("peak_memory_bytes", 1e9),
        "peak_memory_gib": ("peak_memory_bytes", 2.0**30),
        "estimated_memory_gb": ("estimated_memory_bytes", 1e9),
        "model_states_gib": ("model_states_bytes", 2.0**30),
        "activations_gib": ("activation_bytes", 2.0**30),
        "activations_percent_of_none": ("activation_share", 1e-2),
    }
)
_TEXT: Final = frozenset(
    {
        "case",
        "chip",
        "cluster",
        "flop_counting",
        "layers_per_stage",
        "model",
        "node",
        "options",
        "placement",
        "precision",
        "printed_layers_per_stage",
        "profile",
        "recipe",
        "recomputation",
        "schedule",
    }
)
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


@cache
def published_sets() -> Mapping[str, PublishedSet]:
    """Return what each table is, by name."""
    return MappingProxyType({name: _about(name, table(name)) for name in _tables()})


def _about(name: str, values: Row) -> PublishedSet:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in values.items()
        if not isinstance(value, dict)
    }
    return PublishedSet(name=name, **fields)


@cache
def _tables() -> Mapping[str, dict[str, Any]]:
    return tomllib.loads(_text("sets.toml"))


def table(name: str) -> Mapping[str, Any]:
    """Return what `sets.toml` says of a table."""
    return _tables()[name]


def _text(file: str) -> str:
    return (resources.files("dtk.costmodel.measurements") / file).read_text(encoding="utf-8")


def rows_of(name: str) -> Iterator[Row]:
    """Yield the rows of a packaged table, with what they share; cells that are empty are left out."""
    shared = table(name).get("shared", {})
    for row in csv.DictReader(_text(f"{name}.csv").splitlines(), strict=True):
        yield shared | {column: _value(column, cell) for column, cell in row.items() if cell}


def _value(column: str, cell: str) -> Any:
    if column in _TEXT:
        return cell
    if cell in {"true", "false"}:
        return cell == "true"
    return float(cell) if "." in cell or "e" in cell else int(cell)


def runs_of(name: str, rows: Iterable[Row] | None = None) -> tuple[MeasuredRun, ...]:
    """Return the runs of a table: the packaged rows, or others of the same form.

    Raises:
        InputError: If a row does not describe a run.
    """
    runs = []
    seen: dict[str, int] = {}
    for row in rows_of(name) if rows is None else rows:
        setting = _setting(name, row)
        seen[setting["name"]] = seen.get(setting["name"], 0) + 1
        # The same setting was measured more than once.
        if seen[setting["name"]] > 1:
            setting["name"] += f" #{seen[setting['name']]}"
        counting = row.get("flop_counting") if "chip_tflop_per_s" in row else None
        runs.append(MeasuredRun(**setting, **_figures(row), flop_counting=counting))
    return tuple(runs)


def memory_of(name: str) -> tuple[MeasuredMemory, ...]:
    """Return the rows of a packaged table of memory."""
    return tuple(MeasuredMemory(**_setting(name, row), **_figures(row)) for row in rows_of(name))


def _figures(row: Row) -> dict[str, Any]:
    """Return what was measured in one row, in base units."""
    figures: dict[str, Any] = {}
    for column in row.keys() & _UNITS.keys():
        field, unit = _UNITS[column]
        figures[field] = round(row[column] * unit) if field.endswith("_bytes") else row[column] * unit
    if "chip_samples_per_s" in row:
        figures["chip_tokens_per_s"] = row["chip_samples_per_s"] * row["sequence_tokens"]
    return figures


def _setting(name: str, row: Row) -> dict[str, Any]:
    """Return what ran in one row: the fields that all records have."""
    job = TrainingJob.from_values(_picked(row, _JOB))
    layout = Layout.model_validate(_picked(row, _LAYOUT))
    sharding = Sharding(row.get("sharding_stage", 0), row.get("sharding_ranks", 1))
    shape = shape_of(row)
    placement = _placement(row["placement"], table(name)["nodes"]) if "placement" in row else ()
    node = row["node"] if "node" in row else placement[0][0].node
    uniform = len({replica for stage in placement for replica in stage}) < 2
    options = row.get("options", "").split()
    rest = [row["schedule"], row["precision"], *options, "on", node if uniform else "unlike nodes"]
    return {
        "source": published_sets()[name],
        "name": _name(shape, job, layout, sharding, rest),
        "shape": shape,
        "job": job,
        "layout": layout,
        "sharding": sharding,
        "schedule": row["schedule"],
        "precision": row["precision"],
        "node": node,
        "cluster": row.get("cluster"),
        "options": tuple(options),
        "layers_per_stage": _layers_per_stage(row),
        "placement": () if uniform else placement,
    }


def _picked(row: Row, fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: row[field] for field in fields if field in row}


def shape_of(row: Row) -> TransformerShape:
    """Return the model of a row: by its name in the catalogue, or from its sizes."""
    return load_shape(row["model"]) if "model" in row else _shape(**_picked(row, _SHAPE))


@cache
def _shape(**sizes: Any) -> TransformerShape:
    name = f"gpt-h{sizes['hidden_size']}-l{sizes['num_layers']}"
    return TransformerShape.from_values({"name": name, **sizes})


def _layers_per_stage(row: Row) -> tuple[int, ...]:
    """Return the layers of each stage; printed ones count the embedding and the head as a layer each."""
    if "printed_layers_per_stage" in row:
        layers = [int(text) for text in row["printed_layers_per_stage"].split()]
        layers[0] -= 1
        layers[-1] -= 1
        return tuple(layers)
    return tuple(int(text) for text in row.get("layers_per_stage", "").split())


def _placement(text: str, nodes: Mapping[str, str]) -> tuple[tuple[Replica, ...], ...]:
    """Read `RTX-3090:2 + Titan-RTX:2 / GH-96:4`: chip and ranks of each replica, stage by stage."""
    stages = []
    for stage in text.split("/"):
        pairs = (replica.strip().rpartition(":") for replica in stage.split("+"))
        stages.append(tuple(Replica(_node(nodes, chip), int(ranks)) for chip, _, ranks in pairs))
    return tuple(stages)


def _node(nodes: Mapping[str, str], chip: str) -> str:
    if chip not in nodes:
        raise InputError("unknown chip", field="placement", value=chip, hint=f"one of {', '.join(nodes)}")
    return nodes[chip]


def _name(
    shape: TransformerShape, job: TrainingJob, layout: Layout, sharding: Sharding, rest: list[str]
) -> str:
    parts = [
        shape.name,
        f"tp{layout.tensor_parallel} dp{layout.data_parallel} pp{layout.pipeline_parallel}",
        f"chunks{layout.chunks}" if layout.chunks > 1 else "",
        f"zero{sharding.stage}x{sharding.ranks}" if sharding.stage else "",
        f"b{job.micro_batch} of {job.global_batch}",
        job.recomputation,
        "sp" if layout.sequence_parallel else "",
        *rest,
    ]
    return " ".join(part for part in parts if part)
