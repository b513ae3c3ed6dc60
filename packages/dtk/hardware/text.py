"""Figures of the hardware catalogue as people read them: short, in the unit that their name ends in."""

from dtk.hardware.model import Chip, Cluster, Link, Node
from dtk.hardware.sources import Sourced
from dtk.units import BYTES, BYTES_PER_SECOND, FLOP_PER_SECOND, SECONDS, Kind

__all__ = ["figure_text", "summary"]


def figure_text(path: str, value: float) -> str:
    """Return a figure with its unit, which follows from its path: `80GiB` of `memory_bytes`."""
    field = path.partition(".")[0]
    if field.endswith("flop_per_s"):
        return _short(FLOP_PER_SECOND, value)
    if field.endswith("bytes_per_s"):
        return _short(BYTES_PER_SECOND, value)
    if field.endswith("_bytes"):
        return BYTES.format(int(value))
    if field.endswith("_s"):
        return _short(SECONDS, value)
    return f"{value:g}"


def _short(kind: Kind[float], value: float) -> str:
    """Return five digits at most, in the largest unit that leaves one before the point."""
    # Vendors give rates in powers of 1000; the exact text may be shorter in powers of 1024.
    fitting = {scale: unit for unit, scale in kind.written.items() if scale <= value and "i" not in unit}
    if not fitting:
        return kind.format(value)
    return f"{value / float(max(fitting)):.5g}{fitting[max(fitting)]}"


def summary(entry: Sourced) -> str:
    """Return what matters most about an entry, on one line."""
    figures = {path: figure_text(path, value) for path, value in entry.figures()}
    match entry:
        case Chip():
            fabric = f", fabric {figures['fabric_bytes_per_s']}" if entry.fabric else ""
            peak = figures.get("peak_flop_per_s.bf16", figures.get("peak_flop_per_s.fp16", "unknown"))
            return f"{figures['memory_bytes']} {figures['memory_bytes_per_s']}, 16-bit {peak}{fabric}"
        case Link():
            return f"{figures['bytes_per_s']}, {figures['latency_s']}"
        case Node():
            return f"{entry.num_chips} {entry.chip} ({entry.topology}), {entry.num_nics} {entry.network}"
        case Cluster():
            return " + ".join(f"{group.num_nodes} {group.node}" for group in entry.groups)
    return ""
