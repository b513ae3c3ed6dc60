"""Machines from the catalogue: figures as its sheets have them, and what is refused."""

import math

import pytest

from dtk.costmodel.constants import chip_constants
from dtk.costmodel.machine import Machine, machine_of
from dtk.errors import InputError
from dtk.hardware.catalogue import Catalogue, packaged_catalogue
from dtk.hardware.model import Cluster, Node
from tests.costmodel.machines import LATENCIES, RATES, constants_of


def figures(machine: Machine) -> tuple[float, ...]:
    """GB/s of a chip to its node, of a pair, of the node's NICs and of a chip's NICs."""
    return tuple(round(getattr(machine, rate) / 1e9, 2) for rate in RATES)


@pytest.mark.parametrize(
    ("name", "chips", "rates"),
    [
        # 12 NVLinks of 25 GB/s; a NIC of 200 Gb/s for each chip.
        ("DGX-A100x4", 32, (300, 300, 200, 25)),
        # 8 NVLinks of 25 GB/s; all eight chips share 200 or 800 Gb/s.
        ("64xA800-200Gb", 64, (200, 200, 25, 25)),
        ("64xA800-800Gb", 64, (200, 200, 100, 25)),
        ("DGX-H100x2", 16, (450, 450, 400, 50)),
    ],
)
def test_figures_of_sheets(name: str, chips: int, rates: tuple[float, ...]) -> None:
    machine = machine_of(name)
    assert machine.num_chips == chips
    assert figures(machine) == rates
    assert machine.name == name


@pytest.mark.parametrize("node", [node.name for node in packaged_catalogue().nodes])
def test_every_node_of_the_catalogue(node: str) -> None:
    machine = machine_of(f"{node}x3")
    assert machine.num_nodes == 3
    assert machine.num_chips == 3 * packaged_catalogue().node(node).num_chips
    assert all(0 < getattr(machine, rate) < math.inf for rate in RATES)
    assert all(0 <= getattr(machine, latency) < 1e-3 for latency in LATENCIES)
    assert machine.chip_network_bytes_per_s <= machine.network_bytes_per_s
    # A pair has no more than all links of a chip, unless chips are in each other's way to the host.
    described = packaged_catalogue().node(node)
    if described.all_chips_bytes_per_s is None:
        shared = described.num_chips_per_host_link
        assert machine.pair_bytes_per_s <= machine.fabric_bytes_per_s * shared * (1 + 1e-12)
    assert machine.constants == chip_constants(machine.chip.name)


def test_chips_behind_one_switch_share_it() -> None:
    """RTX 3090s meet over PCIe: two behind each switch have half of it each when both send."""
    hosts = [node for node in packaged_catalogue().nodes if node.topology == "host"]
    assert hosts
    for node in hosts:
        machine = machine_of(f"{node.name}x1")
        if node.all_chips_bytes_per_s is not None:
            continue
        assert machine.fabric_bytes_per_s * node.num_chips_per_host_link == machine.pair_bytes_per_s


def test_chips_together_reach_what_was_measured_of_them_but_no_more_than_their_links() -> None:
    """Eight RTX 3090s over PCIe 4, and Titans whose printed figure is more than PCIe 3 carries."""
    slow, fast = machine_of("8xRTX-3090x1"), machine_of("8xTitan-RTXx1")
    assert (slow.fabric_bytes_per_s, slow.pair_bytes_per_s) == (5.3e9, 31.508e9)
    assert fast.fabric_bytes_per_s == fast.pair_bytes_per_s == 15.754e9


def test_a_cluster_of_one_s_own_constants() -> None:
    assert machine_of("DGX-A100x1", constants=constants_of()).constants == constants_of()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("DGX-A100x0", "cluster: needs 1 to 1,000,000 nodes (got 'DGX-A100x0')"),
        ("DGX-A100x1000001", "cluster: needs 1 to 1,000,000 nodes (got 'DGX-A100x1000001')"),
        ("DGX-A100x" + 5000 * "9", "cluster: needs 1 to 1,000,000 nodes (got 'DGX-A100x99"),
        ("DGX-B100x4", "cluster: unknown cluster (got 'DGX-B100x4')"),
        ("400Gb", "cluster: unknown cluster (got '400Gb')"),
        ("", "cluster: unknown cluster (got '')"),
        ("x8", "cluster: unknown cluster (got 'x8')"),
        ("DGX-A100x-1", "cluster: unknown cluster (got 'DGX-A100x-1')"),
        ("DGX-A100x²", "cluster: unknown cluster (got 'DGX-A100x²')"),
    ],
)
def test_no_such_machine(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        machine_of(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["dgx a100x4", "DGX_A100x4", "DGX-A100-80GBx4"])
def test_nodes_in_any_spelling(name: str) -> None:
    assert machine_of(name).chip.name == "A100-SXM-80GB"
    assert machine_of(name).num_nodes == 4


def test_a_cluster_s_own_name_comes_before_nodes_times_their_number() -> None:
    """A user may call a cluster as if it were so many nodes of a type."""
    mine = {"name": "DGX-A100x4", "sources": {"*": "a test"}, "groups": [{"node": "DGX-2", "num_nodes": 3}]}
    known = packaged_catalogue().extended(Catalogue(clusters=(Cluster.model_validate(mine),)))
    assert machine_of("DGX-A100x4", known).chip.name == "V100-SXM-32GB"


def test_a_nic_is_reached_by_the_link_to_the_host() -> None:
    """Four NICs of 50 GB/s for each chip, behind one slot of PCIe 4."""
    wide = packaged_catalogue().node("DGX-A100").model_dump()
    wide |= {
        "name": "wide",
        "aliases": [],
        "network": "InfiniBand-NDR",
        "nic_chips": [[chip] for chip in range(8)] * 4,
    }
    known = packaged_catalogue().extended(Catalogue(nodes=(Node.model_validate(wide),)))
    machine = machine_of("widex2", known)
    assert machine.chip_network_bytes_per_s == known.link("PCIe-4").bytes_per_s
    assert machine.network_bytes_per_s == 32 * 50e9


def test_chips_that_nobody_has_measured_are_named_aloud(caplog: pytest.LogCaptureFixture) -> None:
    machine_of("DGX-A100x1")
    machine_of("Atlas-800T-A2x1", constants=constants_of())
    assert caplog.text == ""
    machine_of("Atlas-800T-A2x1")
    assert (
        "what Ascend-910B3 reaches of its peaks is not known: the A100's shares stand for it" in caplog.text
    )


def test_groups_of_one_kind_of_node_are_one_machine() -> None:
    cluster = {"name": "mine", "sources": {"*": "a test"}}
    like = [{"node": "DGX-A100", "num_nodes": 2}, {"node": "DGX-A100", "num_nodes": 3}]
    assert machine_of(Cluster.model_validate(cluster | {"groups": like})).num_nodes == 5
    unlike = [{"node": "DGX-A100", "num_nodes": 2}, {"node": "DGX-H100", "num_nodes": 1}]
    with pytest.raises(InputError, match=r"cluster: mixes types of nodes \(got 'mine'\)"):
        machine_of(Cluster.model_validate(cluster | {"groups": unlike}))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("DGX-A100", r"cluster: is a type of node .*one of them is DGX-A100x1"),
        ("H100x64", r"H100\S* is a chip: a cluster counts nodes .*nodes with it: .*DGX.H100"),
        ("H100", r"H100\S* is a chip"),
        ("DGX-A100x", r"unknown cluster"),
        ("x8", r"unknown cluster"),
    ],
)
def test_what_is_no_cluster_says_what_it_is(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        machine_of(name)


def test_a_capital_x_counts_nodes_too() -> None:
    assert machine_of("DGX-A100X4").num_chips == machine_of("dgx a100x4").num_chips == 32
