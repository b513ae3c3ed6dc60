"""Times of products of matrices and of streaming operations on a chip: a roofline with launch and ramp.

Source of the form: Williams et al. 2009 (roofline). A product of [m, k] and [k, n] is split into tiles; each
tile starts and ends once however deep k is, so its share of the peak is k / (k + k0). It leaves out the
quantisation of tiles into waves, clocks and power.
"""

from dataclasses import dataclass

from dtk.costmodel.constants import ChipConstants
from dtk.hardware.model import Chip, Precision

__all__ = ["Roofline"]


@dataclass(frozen=True, slots=True)
class Roofline:
    """A chip computing in one precision.

    Attributes:
        chip: The chip.
        constants: What it reaches.
        precision: Of the products' operands.
        element_bytes: Bytes of an operand's element.
        stream_factor: How often what only reads and writes is done over.
    """

    chip: Chip
    constants: ChipConstants
    precision: Precision
    element_bytes: int
    stream_factor: float = 1.0

    @property
    def flop_per_s(self) -> float:
        """What large, deep products reach."""
        return self.chip.peak(self.precision) * self.constants.matmul_share

    @property
    def bytes_per_s(self) -> float:
        """What large reads and writes reach."""
        return self.chip.memory_bytes_per_s * self.constants.memory_share

    def matmul_s(self, m: float, n: float, k: float, count: float = 1) -> float:
        """Return the time of `count` products of [m, k] and [k, n] in one kernel."""
        ramp = 1 + self.constants.matmul_half_depth / k
        compute_s = 2 * m * n * k * count * ramp / self.flop_per_s
        moved_bytes = self.element_bytes * count * (m * k + k * n + m * n)
        return max(compute_s, moved_bytes / self.bytes_per_s) + self.constants.kernel_s

    def attention_s(self, flops: float, moved_bytes: float) -> float:
        """Return the time of fused attention of that many FLOPs, one kernel."""
        compute_s = flops / (self.chip.peak(self.precision) * self.constants.attention_share)
        return max(compute_s, moved_bytes / self.bytes_per_s) + self.constants.kernel_s

    def stream_s(self, moved_bytes: float, kernels: int = 1) -> float:
        """Return the time of kernels that only read and write."""
        once_s = moved_bytes / self.bytes_per_s + kernels * self.constants.kernel_s
        return self.stream_factor * once_s
