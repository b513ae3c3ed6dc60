"""Like nodes of one kind of chip, with the links between ranks: what the cost model needs of a cluster."""

import logging
import re
from dataclasses import dataclass
from typing import Final

from dtk.costmodel.constants import ChipConstants, chip_constants
from dtk.errors import InputError
from dtk.hardware.catalogue import Catalogue, packaged_catalogue
from dtk.hardware.model import Chip, Cluster, Node

__all__ = ["Machine", "machine_of"]

logger = logging.getLogger(__name__)

_MAX_NODES: Final = 10**6

_TIMES: Final = re.compile(r"(.+)[xX](\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Machine:
    """Nodes of one kind; all rates count one direction and are those of the hardware, in full.

    Attributes:
        name: What to call it.
        chip: Its chips.
        num_nodes: Nodes.
        chips_per_node: Chips of a node.
        fabric_bytes_per_s: What one chip sends to the others of its node together.
        pair_bytes_per_s: What one chip sends to one other of its node.
        fabric_latency_s: Of a message inside a node.
        network_bytes_per_s: What a node sends through all its NICs.
        chip_network_bytes_per_s: What one chip sends through the NICs that it has access to, which it reaches
            by its link to the host.
        network_latency_s: Of a message between nodes.
        constants: What the chip reaches of all this.
    """

    name: str
    chip: Chip
    num_nodes: int
    chips_per_node: int
    fabric_bytes_per_s: float
    pair_bytes_per_s: float
    fabric_latency_s: float
    network_bytes_per_s: float
    chip_network_bytes_per_s: float
    network_latency_s: float
    constants: ChipConstants

    @property
    def num_chips(self) -> int:
        """All chips."""
        return self.num_nodes * self.chips_per_node


def machine_of(
    cluster: Cluster | str, catalogue: Catalogue | None = None, *, constants: ChipConstants | None = None
) -> Machine:
    """Return a cluster of like nodes as the cost model sees it.

    Args:
        cluster: The cluster, its name, or `NODExCOUNT` for that many nodes of a type of the catalogue.
        catalogue: Where names are looked up; the packaged catalogue without it.
        constants: What the chip reaches; the packaged constants without it.

    Raises:
        InputError: If the hardware is unknown, or the cluster mixes types of nodes.
    """
    catalogue = catalogue or packaged_catalogue()
    found = _cluster(cluster, catalogue) if isinstance(cluster, str) else cluster
    kinds = {group.node for group in found.groups}
    if len(kinds) > 1:
        hint = "name nodes of one type, such as DGX-A100x8"
        raise InputError("mixes types of nodes", field="cluster", value=found.name, hint=hint)
    node = catalogue.node(found.groups[0].node)
    num_nodes = sum(group.num_nodes for group in found.groups)
    return _machine(found.name, node, num_nodes, catalogue, constants)


def _cluster(name: str, catalogue: Catalogue) -> Cluster:
    try:
        return catalogue.cluster(name)
    except InputError as error:
        times = _TIMES.fullmatch(name)
        node, count = times.groups() if times else ("", "")
        if not _is_node(node, catalogue):
            message, hint = _no_cluster(name, node, error, catalogue)
            raise InputError(message, field="cluster", value=name, hint=hint) from error
    # Python does not read numbers of thousands of digits.
    num_nodes = int(count) if len(count) < 10 else _MAX_NODES + 1
    if not 1 <= num_nodes <= _MAX_NODES:
        raise InputError(f"needs 1 to {_MAX_NODES:,} nodes", field="cluster", value=name)
    group, sources = {"node": node, "num_nodes": num_nodes}, {"*": "the given name"}
    return Cluster.model_validate({"name": name, "groups": [group], "sources": sources})


def _no_cluster(name: str, node: str, error: InputError, catalogue: Catalogue) -> tuple[str, str]:
    """Return what is wrong with a name that is no cluster, and what would be right."""
    if _is_node(name, catalogue):
        return "is a type of node", f"one of them is {name}x1"
    for chip_name in (node, name):
        try:
            chip = catalogue.chip(chip_name)
        except InputError:
            continue
        nodes = [each.name for each in catalogue.nodes if catalogue.chip(each.chip).name == chip.name]
        hint = f"nodes with it: {', '.join(nodes) or 'none'}; or your own, times their number"
        example = f", such as {nodes[0]}x8" if nodes else ""
        return f"{chip.name} is a chip: a cluster counts nodes", hint + example
    return error.message, f"{error.hint}; or nodes times their number, such as DGX-A100x8"


def _is_node(name: str, catalogue: Catalogue) -> bool:
    try:
        catalogue.node(name)
    except InputError:
        return False
    return True


def _machine(
    name: str, node: Node, num_nodes: int, catalogue: Catalogue, constants: ChipConstants | None
) -> Machine:
    chip = catalogue.chip(node.chip)
    pair = catalogue.pair_bytes_per_s(node)
    host = catalogue.link(chip.host_link)
    on_host = node.topology == "host" or chip.fabric_bytes_per_s is None or chip.fabric is None
    fabric = host if on_host else catalogue.link(chip.fabric or "")
    nic = catalogue.link(node.network)
    network = catalogue.network_bytes_per_s(node)
    nics = min(len(node.nics_of(each)) for each in range(node.num_chips))
    together = pair / node.num_chips_per_host_link if on_host else chip.fabric_bytes_per_s or pair
    return Machine(
        name=name,
        chip=chip,
        num_nodes=num_nodes,
        chips_per_node=node.num_chips,
        # What was measured of all chips together is less than their links where the host is in the way.
        fabric_bytes_per_s=min(together, node.all_chips_bytes_per_s or together),
        pair_bytes_per_s=pair,
        fabric_latency_s=fabric.latency_s,
        network_bytes_per_s=network,
        chip_network_bytes_per_s=min(nics * nic.bytes_per_s, host.bytes_per_s),
        network_latency_s=nic.latency_s,
        constants=constants or _constants(chip),
    )


def _constants(chip: Chip) -> ChipConstants:
    found = chip_constants(chip.name)
    if chip.name not in found.chips:
        logger.warning("what %s reaches of its peaks is not known: the A100's shares stand for it", chip.name)
    return found
