"""What was measured of this machine, as a file of hardware that every `--file` takes.

The machine becomes a chip (all its cores together), a link (TCP over its loopback), a node of one such chip
and a cluster of one such node. Peaks and rates are the best that was measured, not what the parts could do.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dtk.errors import InputError
from dtk.hardware.catalogue import packaged_catalogue
from dtk.hardware.machine import MachineFigure
from dtk.hardware.text import figure_text

__all__ = ["check_file", "hardware_text", "machine_tables"]

_YAML = frozenset({".yaml", ".yml"})
_TOML = ".toml"


def machine_tables(
    figures: Sequence[MachineFigure], *, name: str, vendor: str, memory_bytes: int, source: str
) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of a file that describes this machine.

    Args:
        figures: What `measure_machine` returned.
        name: What to call the machine; its link, node and cluster are named after it.
        vendor: Who made the processor, or its name.
        memory_bytes: Memory of the machine.
        source: When and how it was measured, in words.
    """
    medians = {figure.name: figure.median for figure in figures}
    peaks = {precision: _best(medians, f"gemm {precision} ") for precision in ("fp32", "bf16")}
    chip_name, link, node, cluster = _names(name)
    sources = {"*": source}
    chip = {
        "name": chip_name,
        "note": "All cores of this machine together.",
        "vendor": vendor,
        "memory_bytes": figure_text("memory_bytes", memory_bytes),
        "memory_bytes_per_s": figure_text("memory_bytes_per_s", _best(medians, "read ")),
        "peak_flop_per_s": {key: figure_text("flop_per_s", rate) for key, rate in peaks.items() if rate},
        "host_link": link,
        "sources": sources,
    }
    loopback = {
        "name": link,
        "family": "ethernet",
        "bytes_per_s": figure_text("bytes_per_s", medians["loopback stream"]),
        # A message there and a byte back.
        "latency_s": figure_text("latency_s", medians["loopback round trip"] / 2),
        "sources": sources,
    }
    alone = {"chip": chip_name, "num_chips": 1, "topology": "host", "network": link, "nic_chips": [[0]]}
    return {
        "chips": [chip],
        "links": [loopback],
        "nodes": [{"name": node, **alone, "sources": sources}],
        "clusters": [{"name": cluster, "groups": [{"node": node, "num_nodes": 1}]}],
    }


def _best(medians: Mapping[str, float], start: str) -> float:
    return max((rate for name, rate in medians.items() if name.startswith(start)), default=0.0)


def check_file(path: Path, name: str) -> None:
    """Refuse, before anything is measured, a file or a name of a machine that will not do.

    Raises:
        InputError: If the file is there already, its folder is not, its ending is unknown, or the name is
            empty or one of dtk's own.
    """
    if path.suffix not in {*_YAML, _TOML}:
        raise InputError("must end in .toml, .yaml or .yml", field="--write", value=str(path))
    if path.exists():
        raise InputError("is there already", field="--write", value=str(path), hint="take another name")
    if not path.parent.is_dir():
        raise InputError("the folder does not exist", field="--write", value=str(path))
    if not any(letter.isascii() and letter.isalnum() for letter in name):
        raise InputError("must have a letter or a digit", field="--name", value=name)
    packaged = packaged_catalogue()
    for taken in _names(name):
        try:
            found = packaged.entry(taken)
        except InputError:
            continue
        raise InputError(f"is dtk's own {found.kind} {found.name}", field="--name", value=name)


def _names(name: str) -> tuple[str, str, str, str]:
    """Return what the chip, its link, its node and its cluster are called."""
    return name, f"{name} loopback", f"{name} node", f"{name} cluster"


def hardware_text(tables: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> bytes:
    """Return the content of a file of hardware: YAML if its name ends so, else TOML."""
    if path.suffix in _YAML:
        text = yaml.dump(dict(tables), sort_keys=False, allow_unicode=True, Dumper=_Plain)
    else:
        text = "\n".join(_toml(kind, entry) for kind, entries in tables.items() for entry in entries)
    return text.encode()


class _Plain(yaml.SafeDumper):
    """Writes what stands in several places each time in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _toml(kind: str, entry: Mapping[str, Any]) -> str:
    lines = (f"{key} = {_toml_value(value)}" for key, value in entry.items())
    return "\n".join([f"[[{kind}]]", *lines, ""])


def _toml_value(value: Any) -> str:
    """Return a value in TOML, whose texts, numbers and lists are written as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_value(k)} = {_toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    # TOML has no pairs of surrogates, by which JSON could escape what is not ASCII.
    return json.dumps(value, ensure_ascii=False)
