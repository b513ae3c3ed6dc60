"""What a simulation of a schedule tells. Integers throughout; the same from both engines."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from dtk.pipeline.action import Action

__all__ = ["IdleCause", "MemoryKind", "MemoryStep", "Simulation", "StreamKind", "Task", "TrafficKind"]


class StreamKind(StrEnum):
    """What a rank does several of at once, each in its own order."""

    COMPUTE = "compute"
    SEND = "send"
    UNSHARD = "unshard"
    REDUCE = "reduce"


class IdleCause(StrEnum):
    """Why a rank's compute stream stood still."""

    FILL = "fill"  # before its first compute action
    ACTIVATION = "activation"  # the stage before had not computed its output
    GRADIENT = "gradient"  # the stage after had not computed its input gradient
    TRANSFER = "transfer"  # that was computed, and on its way
    UNSHARD = "unshard"  # the parameters were being gathered
    REDUCE = "reduce"  # the optimizer waited for a reduction of gradients
    DRAIN = "drain"  # after its last compute action, for the other ranks


class MemoryKind(StrEnum):
    """What a rank holds in memory over time."""

    ACTIVATION = "activation"  # forward to input gradient
    WEIGHT_GRAD_INPUT = "weight_grad_input"  # input gradient to weight gradient
    PARAMETER = "parameter"
    GRADIENT = "gradient"


class TrafficKind(StrEnum):
    """What a rank sends."""

    ACTIVATION = "activation"
    GRADIENT = "gradient"
    UNSHARD = "unshard"
    REDUCE_GRAD = "reduce_grad"


@dataclass(frozen=True, slots=True)
class Task:
    """One thing that took time on a stream of a rank.

    Attributes:
        rank: The rank; of a transfer, the one that sends.
        stream: What it ran on.
        action: Of a transfer the compute action (of a pair, the part) whose output it carries; None for the
            optimizer step.
        start_ns: Its start.
        end_ns: Its end.
        peer: The receiving rank of a transfer.
    """

    rank: int
    stream: StreamKind
    action: Action | None
    start_ns: int
    end_ns: int
    peer: int | None = None


class MemoryStep(NamedTuple):
    """What a rank holds of one kind from `time_ns` on, until its next step."""

    time_ns: int
    rank: int
    kind: MemoryKind
    held_bytes: int


@dataclass(frozen=True)
class Simulation:
    """The result; every list has one entry a rank.

    Attributes:
        makespan_ns: From 0 to the end of the last task, the optimizer's included.
        compute_ns: The time in compute actions and the optimizer step.
        idle_ns: makespan_ns less compute_ns, by cause; causes without time are left out.
        peak_bytes: The largest sum over the kinds of memory at one time.
        peak_bytes_by_kind: For each kind its own largest, which need not fall at the same time.
        peak_activation_chunks: The most chunk activations alive at once, each from the start of the forward
            to the end of the weight gradient (or of the full backward).
        gathers: UNSHARD actions.
        reduce_scatters: REDUCE_GRAD actions.
        traffic_bytes: What was sent, gathered or reduced, by kind: counts times the sizes in `StageCosts`. A
            message with a gradient is as large as the activation message the other way.
    """

    makespan_ns: int
    compute_ns: tuple[int, ...]
    idle_ns: tuple[Mapping[IdleCause, int], ...]
    peak_bytes: tuple[int, ...]
    peak_bytes_by_kind: tuple[Mapping[MemoryKind, int], ...]
    peak_activation_chunks: tuple[int, ...]
    gathers: tuple[int, ...]
    reduce_scatters: tuple[int, ...]
    traffic_bytes: tuple[Mapping[TrafficKind, int], ...]

    @property
    def idle_total_ns(self) -> tuple[int, ...]:
        """The makespan less each rank's compute time."""
        return tuple(self.makespan_ns - busy for busy in self.compute_ns)

    @property
    def bubble_ratio(self) -> Fraction:
        """All ranks' idle time over ranks times makespan; 0 for an empty schedule."""
        span = self.makespan_ns * len(self.compute_ns)
        return Fraction(sum(self.idle_total_ns), span) if span else Fraction(0)
