"""When to recall: every so many decode steps, staggered over the layers."""

__all__ = ["RecallTimer"]


class RecallTimer:
    """Counts one layer's decode steps from recall to recall (section 3.4).

    Args:
        interval: Steps from one recall to the next; None never recalls.
        phase: Steps already counted at the start, so that the layers' copies do not bunch in one step.
    """

    def __init__(self, interval: int | None, phase: int = 0) -> None:
        self._interval = interval
        self._steps = phase % interval if interval else 0

    def tick(self) -> bool:
        """Count one decode step and return whether a recall is due after it."""
        if self._interval is None:
            return False
        self._steps += 1
        due = self._steps >= self._interval
        if due:
            self._steps = 0
        return due
