"""Names that several attention operations share."""

from typing import Literal

__all__ = ["HeadReduction"]

HeadReduction = Literal["layer", "group_sum", "group_max"]
