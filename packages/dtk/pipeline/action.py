"""One step of a pipeline rank, in the notation of torch's pipelining: `2F0`, `1I3`, `0UNSHARD`.

A forward and a backward that run as one (DualPipe's overlapped pair) are one action with two sub-actions:
`(0F1;3B0)OVERLAP_F_B`.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple, Self

from dtk.errors import InputError

__all__ = ["COMPUTE_KINDS", "PARAMETER_KINDS", "TRANSFER_KINDS", "Action", "Kind"]


class Kind(StrEnum):
    """What an action does; the values are torch's letters."""

    FORWARD = "F"
    FULL_BACKWARD = "B"
    INPUT_GRAD = "I"  # the zero-bubble papers' B
    WEIGHT_GRAD = "W"
    OVERLAP_F_B = "OVERLAP_F_B"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    UNSHARD = "UNSHARD"  # all-gather of a stage's parameters
    RESHARD = "RESHARD"  # drop the gathered parameters
    REDUCE_GRAD = "REDUCE_GRAD"  # reduce-scatter of a stage's gradients


COMPUTE_KINDS: Final = frozenset(
    {Kind.FORWARD, Kind.FULL_BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.OVERLAP_F_B}
)
TRANSFER_KINDS: Final = frozenset({Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B})
PARAMETER_KINDS: Final = frozenset({Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD})

_SINGLE = re.compile(r"(\d{1,9})([A-Z_]+?)(\d{1,9})?", re.ASCII)
_PAIR = re.compile(r"\(([^()]*)\)OVERLAP_F_B", re.ASCII)
_HINT: Final = "write stage, kind, micro-batch, as in 2F0, 1I3, 0UNSHARD or (0F1;3B0)OVERLAP_F_B"


class Action(NamedTuple):
    """One action of one rank.

    Attributes:
        stage: The stage (model chunk) it works on; -1 for a pair.
        kind: What it does.
        microbatch: The micro-batch; None for a pair and for `UNSHARD`, `RESHARD` and `REDUCE_GRAD`.
        sub_actions: Of a pair its forward and its backward, else empty.
    """

    stage: int
    kind: Kind
    microbatch: int | None = None
    sub_actions: tuple["Action", ...] = ()

    def __str__(self) -> str:
        """Return torch's notation."""
        if self.sub_actions:
            return f"({';'.join(map(str, self.sub_actions))}){self.kind}"
        return f"{self.stage}{self.kind}{'' if self.microbatch is None else self.microbatch}"

    @property
    def parts(self) -> tuple["Action", ...]:
        """The sub-actions of a pair, otherwise the action alone."""
        return self.sub_actions or (self,)

    @classmethod
    def pair(cls, forward: "Action", backward: "Action") -> Self:
        """Return the action that runs a forward and a backward as one."""
        return cls(-1, Kind.OVERLAP_F_B, None, (forward, backward))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one action from torch's notation.

        Raises:
            InputError: If `text` is no action.
        """
        if match := _PAIR.fullmatch(text.strip()):
            parts = tuple(map(cls.parse, match[1].split(";")))
            kinds = [part.kind for part in parts]
            if kinds not in ([Kind.FORWARD, Kind.FULL_BACKWARD], [Kind.FORWARD, Kind.INPUT_GRAD]):
                wrong = "a pair holds a forward and then a backward"
                raise InputError(wrong, field="action", value=text, hint=_HINT)
            return cls(-1, Kind.OVERLAP_F_B, None, parts)
        match = _SINGLE.fullmatch(text.strip())
        if match is None or match[2] not in _SINGLE_KINDS:
            raise InputError("not an action of a schedule", field="action", value=text, hint=_HINT)
        kind = Kind(match[2])
        if (match[3] is None) != (kind in PARAMETER_KINDS):
            wrong = "needs no micro-batch" if match[3] else "needs a micro-batch"
            raise InputError(f"{kind} {wrong}", field="action", value=text, hint=_HINT)
        return cls(int(match[1]), kind, None if match[3] is None else int(match[3]))


_SINGLE_KINDS: Final = frozenset(kind.value for kind in Kind if kind is not Kind.OVERLAP_F_B)
