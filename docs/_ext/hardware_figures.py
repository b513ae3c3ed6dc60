"""Writes the page of hardware figures and their sources from the packaged catalogue."""

from itertools import groupby

from dtk.hardware import Chip, Cluster, Link, Node, Source, Sourced, packaged_catalogue
from dtk.hardware.text import figure_text, summary

__all__ = ["hardware_page"]

_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
_INTRODUCTION = """What dtk knows of hardware, written from the catalogue when this page was made.
`dtk hardware list` and `dtk hardware show NAME` print the same; `--file FILE` adds hardware of your own, in
TOML or YAML of the same form, where every figure must have a source too (`sources = {"*" = "measured here"}`
will do).

Rates of links count one direction. Peaks are those of dense matrix products with fp32 accumulation: where a
datasheet prints the rate with 2:4 sparsity, half of it stands here. Vendors' GB of device memory are read as
GiB, which is what the chips report. An asterisk marks an estimate, whose reason its source gives."""


def hardware_page() -> str:
    """Return the page: a table of each kind, then the sources of every entry."""
    known = packaged_catalogue()
    parts = [
        "# Hardware",
        _INTRODUCTION,
        "## Chips",
        _table([_CHIP_HEADER, *map(_chip_row, known.chips)]),
        "## Links",
        _table([("link", "family", "one direction", "latency"), *map(_link_row, known.links)]),
        "## Nodes",
        _table(
            [("node", "chips", "between them", "NICs", "chips a host link"), *map(_node_row, known.nodes)]
        ),
        "## Clusters",
        _table([("cluster", "nodes", "")] + [_cluster_row(cluster) for cluster in known.clusters]),
        "## Sources",
        *(_sources(entry) for entry in known.entries() if any(entry.figures())),
    ]
    return "\n\n".join(parts) + "\n"


_CHIP_HEADER = ("chip", "memory", "memory rate", *_PRECISIONS, "fabric", "out of a chip", "host link")


def _chip_row(chip: Chip) -> tuple[str, ...]:
    peaks = (_figure(chip, f"peak_flop_per_s.{precision}") for precision in _PRECISIONS)
    memory = (_figure(chip, "memory_bytes"), _figure(chip, "memory_bytes_per_s"))
    fabric = (chip.fabric or "", _figure(chip, "fabric_bytes_per_s"))
    return (f"`{chip.name}`", *memory, *peaks, *fabric, chip.host_link)


def _link_row(link: Link) -> tuple[str, ...]:
    return (f"`{link.name}`", link.family, _figure(link, "bytes_per_s"), _figure(link, "latency_s"))


def _node_row(node: Node) -> tuple[str, ...]:
    nics = f"{node.num_nics} {node.network}"
    chips = f"{node.num_chips} {node.chip}"
    return (f"`{node.name}`", chips, node.topology, nics, _figure(node, "num_chips_per_host_link"))


def _cluster_row(cluster: Cluster) -> tuple[str, ...]:
    return (f"`{cluster.name}`", summary(cluster), cluster.note)


def _figure(entry: Sourced, path: str) -> str:
    """Return a figure as text, with an asterisk if it is an estimate; nothing if there is none."""
    for known, value in entry.figures():
        if known == path:
            return figure_text(path, value) + ("*" if entry.source(path).estimate else "")
    return ""


def _sources(entry: Sourced) -> str:
    figures = [(path, entry.source(path)) for path, _ in entry.figures()]
    lines = [f"### `{entry.name}`", ""]
    if entry.note:
        lines += [entry.note, ""]
    for source, group in groupby(figures, key=lambda pair: pair[1]):
        paths = ", ".join(f"`{path}`" for path, _ in group)
        lines.append(f"- {paths}: {_source_text(source)}")
    return "\n".join(lines)


def _source_text(source: Source) -> str:
    title = f"[{source.title}]({source.url})" if source.url else source.title
    read = f" (read at <{source.read_at}>)" if source.read_at else ""
    note = f"; {source.note}" if source.note else ""
    return f"{'*estimate*, ' if source.estimate else ''}{title}{read}{note}"


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
