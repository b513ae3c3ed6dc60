"""Finds hardware by name: the packaged catalogue, and files of users in the same form."""

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict

from dtk.configuration import input_error, read_config_file
from dtk.errors import InputError
from dtk.hardware.model import Chip, Cluster, Link, Node
from dtk.hardware.sources import Source, Sourced
from dtk.units import BYTES, BYTES_PER_SECOND, FLOP_PER_SECOND, SECONDS, Kind

__all__ = ["Catalogue", "load_catalogue", "packaged_catalogue"]

EntryT = TypeVar("EntryT", bound=Sourced)

_REFERENCES = pydantic.TypeAdapter(dict[str, Source])


class Catalogue(BaseModel):
    """Hardware by name. A file holds the same tables, and `references` that its sources may name.

    Attributes:
        chips: Accelerators.
        links: Links inside and between nodes.
        nodes: Types of machines.
        clusters: Groups of machines.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chips: tuple[Chip, ...] = ()
    links: tuple[Link, ...] = ()
    nodes: tuple[Node, ...] = ()
    clusters: tuple[Cluster, ...] = ()

    def entries(self) -> Iterator[Chip | Link | Node | Cluster]:
        """Yield all entries: chips, links, nodes, clusters."""
        yield from self.chips
        yield from self.links
        yield from self.nodes
        yield from self.clusters

    def chip(self, name: str) -> Chip:
        """Return a chip by name or alias; raises `InputError` with the nearest name if there is none."""
        return _find(self.chips, name, "chip")

    def link(self, name: str) -> Link:
        """Return a link by name or alias; raises `InputError` with the nearest name if there is none."""
        return _find(self.links, name, "link")

    def node(self, name: str) -> Node:
        """Return a node type by name or alias; raises `InputError` with the nearest name if there is none."""
        return _find(self.nodes, name, "node")

    def cluster(self, name: str) -> Cluster:
        """Return a cluster by name or alias; raises `InputError` with the nearest name if there is none."""
        return _find(self.clusters, name, "cluster")

    def entry(self, name: str) -> Chip | Link | Node | Cluster:
        """Return an entry of any kind by name or alias; raises `InputError` if there is none."""
        return _find(tuple(self.entries()), name, "hardware")

    def num_chips(self, cluster: Cluster) -> int:
        """Return how many chips a cluster has in all its groups."""
        return sum(group.num_nodes * self.node(group.node).num_chips for group in cluster.groups)

    def network_bytes_per_s(self, node: Node) -> float:
        """Return what a node sends at most through all its NICs together."""
        return node.num_nics * self.link(node.network).bytes_per_s

    def pair_bytes_per_s(self, node: Node) -> float:
        """Return what one chip of a node sends to one other at most, with no one else sending."""
        chip = self.chip(node.chip)
        if node.topology == "host" or chip.fabric_bytes_per_s is None:
            return self.link(chip.host_link).bytes_per_s
        shares = node.num_chips - 1 if node.topology == "mesh" else 1
        return chip.fabric_bytes_per_s / max(1, shares)

    def extended(self, other: "Catalogue") -> "Catalogue":
        """Return both together; entries of `other` replace those of the same name.

        Raises:
            InputError: If two entries answer to one name, or one names hardware that is not there.
        """
        replaced = {_folded(entry.name) for entry in other.entries()}
        parts = {
            field: (
                *(entry for entry in getattr(self, field) if _folded(entry.name) not in replaced),
                *getattr(other, field),
            )
            for field in Catalogue.model_fields
        }
        together = Catalogue(**parts)
        together._check()
        return together

    def _check(self) -> None:
        owners: dict[str, str] = {}
        for entry in self.entries():
            for name in {_folded(text) for text in (entry.name, *entry.aliases)}:
                if name in owners:
                    raise InputError(f"{entry.name} and {owners[name]} answer to one name", value=name)
                owners[name] = entry.name
        for entry in self.entries():
            try:
                self._check_names(entry)
            except InputError as error:
                raise InputError(
                    error.message, field=entry.name, value=error.value, hint=error.hint
                ) from error

    def _check_names(self, entry: Chip | Link | Node | Cluster) -> None:
        """Look up all hardware that an entry names."""
        match entry:
            case Chip():
                self.link(entry.host_link)
                if entry.fabric is not None:
                    self.link(entry.fabric)
            case Node():
                self.chip(entry.chip)
                self.link(entry.network)
            case Cluster():
                for group in entry.groups:
                    self.node(group.node)
                for link in entry.links:
                    self.link(link.link)


def _folded(name: str) -> str:
    """Return a name without what people write differently: case, spaces, dashes, underscores, slashes."""
    return "".join(letter for letter in name.lower() if letter not in " -_/")


def _find(entries: tuple[EntryT, ...], name: str, kind: str) -> EntryT:
    named = {_folded(text): entry for entry in entries for text in (entry.name, *entry.aliases)}
    found = named.get(_folded(name))
    if found is not None:
        return found
    near = get_close_matches(_folded(name), named, n=3, cutoff=0.5)
    nearest = dict.fromkeys(named[text].name for text in near)
    hint = f"do you mean {' or '.join(nearest)}?" if nearest else "'dtk hardware list' shows all"
    raise InputError(f"unknown {kind}", field=kind, value=name, hint=hint)


@cache
def packaged_catalogue() -> Catalogue:
    """Return the catalogue that comes with dtk."""
    tables: dict[str, Any] = {"references": {}}
    for file in sorted(_packaged_files(), key=lambda path: path.name):
        for key, value in tomllib.loads(file.read_text(encoding="utf-8")).items():
            tables[key] = tables[key] | value if key == "references" else [*tables.get(key, []), *value]
    return Catalogue().extended(_read(tables))


def _packaged_files() -> Iterator[Any]:
    folder = resources.files("dtk.hardware") / "catalogue"
    return (file for file in folder.iterdir() if file.name.endswith(".toml"))


def load_catalogue(file: Path | None = None) -> Catalogue:
    """Return the packaged catalogue, with the entries of a TOML or YAML file beside or instead of its own.

    Raises:
        InputError: If the file cannot be read, what it says cannot be, or a figure has no unit.
    """
    if file is None:
        return packaged_catalogue()
    try:
        tables = read_config_file(file)
        _refuse_bare_figures(tables, "")
        return packaged_catalogue().extended(_read(tables))
    except InputError as error:
        field = "--file" if error.field in {None, "--config"} else f"--file: {error.field}"
        raise InputError(error.message, field=field, value=error.value, hint=error.hint) from error


def _refuse_bare_figures(value: Any, path: str) -> None:
    """Refuse numbers where a figure has a unit: 400 for a rate might be meant in Gb/s, and would be B/s."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key != "sources":
                _refuse_bare_figures(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_bare_figures(item, f"{path}.{index}" if path else str(index))
    elif isinstance(value, int | float) and not isinstance(value, bool) and (kind := _kind_of(path)):
        hint = f"a text with its unit, for example {kind.example}"
        raise InputError("needs a unit", field=path, value=value, hint=hint)


def _kind_of(path: str) -> Kind[Any] | None:
    """Return what a figure counts, by the names of its fields; None where it has no unit."""
    field = path.rpartition(".")[2]
    if ".peak_flop_per_s." in path:
        return FLOP_PER_SECOND
    if field.endswith("bytes_per_s"):
        return BYTES_PER_SECOND
    if field.endswith("_bytes"):
        return BYTES
    return SECONDS if field == "latency_s" else None


def _read(tables: Mapping[str, Any]) -> Catalogue:
    """Validate a file's tables, with the references that its sources name put in their place."""
    content = dict(tables)
    try:
        references = _REFERENCES.validate_python(content.pop("references", {}))
        for kind in Catalogue.model_fields:
            if isinstance(content.get(kind), list):
                content[kind] = [_with_sources(entry, references) for entry in content[kind]]
        return Catalogue.model_validate(content)
    except pydantic.ValidationError as error:
        known = [*Catalogue.model_fields, "references"]
        at_the_top = len(error.errors()[0]["loc"]) == 1
        raise input_error(error, known_keys=known if at_the_top else ()) from error


def _with_sources(entry: Any, references: Mapping[str, Source]) -> Any:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("sources"), Mapping):
        return entry
    sources = {key: _resolved(source, references) for key, source in entry["sources"].items()}
    return {**entry, "sources": sources}


def _resolved(source: Any, references: Mapping[str, Source]) -> Any:
    """Return a source in full: `"sheet"` or `{reference = "sheet", note = "..."}` take what `sheet` says."""
    if isinstance(source, str):
        return references.get(source, source)
    if not isinstance(source, Mapping) or "reference" not in source:
        return source
    name = source["reference"]
    if not isinstance(name, str) or name not in references:
        known = ", ".join(references) or "none"
        raise InputError("unknown reference", field="sources", value=name, hint=f"the file has {known}")
    rest = {key: value for key, value in source.items() if key != "reference"}
    return {**references[name].model_dump(), **rest}
