"""Hardware: chips, links, nodes and clusters by name, each figure with its source; this machine's figures."""

from dtk.hardware.catalogue import Catalogue, load_catalogue, packaged_catalogue
from dtk.hardware.model import Chip, Cluster, GroupLink, Link, Node, NodeGroup, Peaks, Precision
from dtk.hardware.sources import Source, Sourced

__all__ = [
    "Catalogue",
    "Chip",
    "Cluster",
    "GroupLink",
    "Link",
    "Node",
    "NodeGroup",
    "Peaks",
    "Precision",
    "Source",
    "Sourced",
    "load_catalogue",
    "packaged_catalogue",
]
