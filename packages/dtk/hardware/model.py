"""What hardware is, as data: chips, links, nodes and clusters, with a source for every figure.

Rates of links count one direction. Peak rates are those of dense products of matrices with fp32 accumulation
(int32 for int8); vendors' larger figures "with sparsity" are not in here. Vendors' GB of device memory are
read as GiB, which is what the chips report; drivers keep some percent of it.

It leaves out clocks, caches, power and price, and anything that is not a figure of the hardware itself: how
much of a peak is reached belongs to the cost model.
"""

from typing import Annotated, ClassVar, Literal

import pydantic
from pydantic import BaseModel, ConfigDict

from dtk.errors import InputError
from dtk.hardware.sources import Sourced
from dtk.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds

__all__ = ["Chip", "Cluster", "GroupLink", "Link", "Node", "NodeGroup", "Peaks", "Precision"]

# Strict, or true would count as 1.
Count = Annotated[int, pydantic.Field(gt=0, le=10**6, strict=True)]

# Nothing built comes near these; beyond them a slip of the keyboard would only give absurd times.
Memory = Annotated[Bytes, pydantic.Field(ge=1, le=2**60)]
Rate = Annotated[BytesPerSecond, pydantic.Field(ge=1, le=1e18)]
FlopRate = Annotated[FlopPerSecond, pydantic.Field(ge=1, le=1e24)]
Latency = Annotated[Seconds, pydantic.Field(le=10)]

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"]


class Peaks(BaseModel):
    """Peak rates of dense matrix products by precision; None where the chip has no such unit.

    Attributes:
        fp32: True fp32 products.
        tf32: fp32 operands rounded to TensorFloat-32.
        fp16: fp16 operands, fp32 accumulation.
        bf16: bf16 operands, fp32 accumulation.
        fp8: fp8 operands of either kind, fp32 accumulation.
        fp4: fp4 operands with block scales.
        int8: int8 operands, int32 accumulation; operations count as FLOP.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fp32: FlopRate | None = None
    tf32: FlopRate | None = None
    fp16: FlopRate | None = None
    bf16: FlopRate | None = None
    fp8: FlopRate | None = None
    fp4: FlopRate | None = None
    int8: FlopRate | None = None


class Chip(Sourced):
    """An accelerator.

    Attributes:
        vendor: Who makes it.
        memory_bytes: Device memory.
        memory_bytes_per_s: Rate at which it is read.
        peak_flop_per_s: Peak rates of dense matrix products.
        fabric: Name of the link between chips of a node; None where that is the host link.
        fabric_bytes_per_s: What the fabric carries out of one chip, all its links together.
        host_link: Name of the link to the host.
    """

    kind: ClassVar[str] = "chip"

    vendor: str
    memory_bytes: Memory
    memory_bytes_per_s: Rate
    peak_flop_per_s: Peaks
    fabric: str | None = None
    fabric_bytes_per_s: Rate | None = None
    host_link: str

    def peak(self, precision: Precision) -> float:
        """Return the peak rate of dense matrix products.

        Raises:
            InputError: If the chip has no unit for this precision.
        """
        rate: float | None = getattr(self.peak_flop_per_s, precision)
        if rate is None:
            known = ", ".join(self.peak_flop_per_s.model_dump(exclude_none=True))
            hint = f"it has {known}"
            raise InputError(f"{self.name} has no such rate", field="precision", value=precision, hint=hint)
        return rate

    @pydantic.model_validator(mode="after")
    def _fabric_and_its_rate(self) -> "Chip":
        if (self.fabric is None) != (self.fabric_bytes_per_s is None):
            raise InputError(f"{self.name} needs both fabric and fabric_bytes_per_s, or neither")
        return self


class Link(Sourced):
    """One link of a kind: a PCIe slot of 16 lanes, one NVLink, one port of a NIC.

    Attributes:
        family: What it is; `ethernet` is TCP through the host, `roce` is RDMA over the same cables.
        bytes_per_s: Payload rate of one direction, after line coding and before packet headers.
        latency_s: Time until a small message has arrived, software of the usual libraries included.
    """

    kind: ClassVar[str] = "link"

    family: Literal[
        "pcie",
        "nvlink",
        "nvlink-c2c",
        "hccs",
        "infinity-fabric",
        "infiniband",
        "roce",
        "ethernet",
        "slingshot",
    ]
    bytes_per_s: Rate
    latency_s: Latency


class Node(Sourced):
    """A machine of like chips.

    Attributes:
        chip: Name of its chips.
        num_chips: How many.
        topology: `switch`: a pair of chips gets a chip's whole fabric rate; `mesh`: every pair has an equal
            share of it; `host`: chips meet over the host links.
        network: Name of the link that each NIC has to the network.
        nic_chips: For each NIC, the chips (counted from 0) that send through it.
        num_chips_per_host_link: Chips that share one link to the host, behind a PCIe switch.
        host_memory_bytes: Memory of the host, if known.
        all_chips_bytes_per_s: Rate out of each chip while all chips of the node exchange data, where that was
            measured.
    """

    kind: ClassVar[str] = "node"

    chip: str
    num_chips: Count
    topology: Literal["switch", "mesh", "host"]
    network: str
    nic_chips: tuple[tuple[int, ...], ...]
    num_chips_per_host_link: Count = 1
    host_memory_bytes: Memory | None = None
    all_chips_bytes_per_s: Rate | None = None

    @property
    def num_nics(self) -> int:
        """NICs that chips send through."""
        return len(self.nic_chips)

    def nics_of(self, chip: int) -> tuple[int, ...]:
        """Return the NICs, counted from 0, that a chip sends through."""
        return tuple(nic for nic, chips in enumerate(self.nic_chips) if chip in chips)

    @pydantic.model_validator(mode="after")
    def _every_chip_has_a_nic(self) -> "Node":
        named = {chip for chips in self.nic_chips for chip in chips}
        if named != set(range(self.num_chips)):
            wrong = sorted(named.symmetric_difference(range(self.num_chips)))
            hint = f"each of the chips 0 to {self.num_chips - 1} once or more, and no others"
            raise InputError(f"nic_chips of {self.name} must name every chip", value=wrong, hint=hint)
        if self.num_chips % self.num_chips_per_host_link:
            raise InputError(
                f"num_chips_per_host_link of {self.name} must divide num_chips",
                value=self.num_chips_per_host_link,
                hint=f"a divisor of {self.num_chips}",
            )
        return self


class NodeGroup(BaseModel):
    """Like nodes of a cluster.

    Attributes:
        node: Name of the node type.
        num_nodes: How many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    num_nodes: Count


class GroupLink(BaseModel):
    """What two groups of nodes share, where that is less than their NICs.

    Attributes:
        groups: The two groups, counted from 0.
        link: Name of the link.
        num_links: How many of them, between the two groups as wholes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: tuple[int, int]
    link: str
    num_links: Count


class Cluster(Sourced):
    """Groups of nodes. In a group, and between groups without a link of their own, the NICs are the limit.

    Attributes:
        groups: The groups.
        links: Narrower ways between groups.
    """

    kind: ClassVar[str] = "cluster"

    groups: tuple[NodeGroup, ...] = pydantic.Field(min_length=1)
    links: tuple[GroupLink, ...] = ()

    @pydantic.model_validator(mode="after")
    def _links_join_groups(self) -> "Cluster":
        for link in self.links:
            first, second = link.groups
            if first == second or not {first, second} <= set(range(len(self.groups))):
                hint = f"two of 0 to {len(self.groups) - 1}"
                raise InputError(f"a link of {self.name} must join two groups", value=link.groups, hint=hint)
        return self
