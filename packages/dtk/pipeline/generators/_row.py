"""What the generators share: checks of sizes, and building one rank's actions.

In every schedule but ZeroPP's and torch's breadth-first one, each stage meets its micro-batches in ascending
order in each kind of action. Then a rank's list is told by kinds and stages alone: `Row` counts the
micro-batches.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

from dtk.errors import InputError
from dtk.pipeline.action import Action, Kind
from dtk.pipeline.schedule import MAX_ACTIONS

__all__ = ["Row", "check_positive", "check_sizes", "one_forward_one_backward"]


def check_sizes(num_ranks: int, num_chunks: int, num_microbatches: int) -> None:
    """Refuse what no schedule can be made of.

    Raises:
        InputError: If a size is no whole number from 1 on, or the schedule would have too many actions.
    """
    sizes = {"num_ranks": num_ranks, "num_chunks": num_chunks, "num_microbatches": num_microbatches}
    for name, value in sizes.items():
        check_positive(name, value)
    if 3 * num_ranks * num_chunks * num_microbatches > MAX_ACTIONS:
        raise InputError(
            f"with {num_ranks} ranks of {num_chunks} chunks, more than {MAX_ACTIONS} actions",
            field="num_microbatches",
            value=num_microbatches,
            hint="fewer ranks, chunks or micro-batches",
        )


def check_positive(name: str, value: int) -> None:
    """Refuse a value that is no whole number from 1 on."""
    if type(value) is not int or value < 1:
        raise InputError("must be a whole number, 1 or more", field=name, value=value)


class Row:
    """One rank's actions; each call adds the next micro-batch of its stage and kind.

    Micro-batches from `num_microbatches` on are counted and left out. A schedule that is drawn for a full
    pipeline thus serves fewer micro-batches too: an action depends on actions of its own micro-batch alone,
    so that what is left waits for nothing that was left out.
    """

    def __init__(self, num_microbatches: int) -> None:
        self.actions: list[Action] = []
        self._num_microbatches = num_microbatches
        self._next: defaultdict[tuple[Kind, int], int] = defaultdict(int)
        self._pending: deque[Action] = deque()

    def forward(self, stage: int) -> None:
        """Add a forward."""
        self._add(self._take(Kind.FORWARD, stage))

    def backward(self, stage: int) -> None:
        """Add a full backward."""
        self._add(self._take_backward(stage))

    def input_grad(self, stage: int) -> None:
        """Add an input gradient, and remember that its weight gradient is due."""
        action = self._take(Kind.INPUT_GRAD, stage)
        self._add(action)
        self._pending.append(action._replace(kind=Kind.WEIGHT_GRAD))

    def weight_grad(self, stage: int | None = None) -> None:
        """Add the oldest weight gradient that is due, of any stage or of `stage`; nothing if none is due."""
        for action in self._pending:
            if stage is None or action.stage == stage:
                self._pending.remove(action)
                self._add(action)
                return

    def pair(self, forward_stage: int, backward_stage: int) -> None:
        """Add a forward and a full backward that run as one; alone, if the other has no micro-batch left."""
        parts = [self._take(Kind.FORWARD, forward_stage), self._take_backward(backward_stage)]
        kept = [part for part in parts if self._exists(part)]
        self.actions += [Action.pair(*kept)] if len(kept) == 2 else kept

    def finish(self) -> tuple[Action, ...]:
        """Add the weight gradients still due, oldest first, and return all actions."""
        while self._pending:
            self.weight_grad()
        return tuple(self.actions)

    def _take_backward(self, stage: int) -> Action:
        # Full and split backwards of a stage share one count.
        return self._take(Kind.INPUT_GRAD, stage)._replace(kind=Kind.FULL_BACKWARD)

    def _take(self, kind: Kind, stage: int) -> Action:
        action = Action(stage, kind, self._next[kind, stage])
        self._next[kind, stage] += 1
        return action

    def _exists(self, action: Action) -> bool:
        return action.microbatch is not None and action.microbatch < self._num_microbatches

    def _add(self, action: Action) -> None:
        if self._exists(action):
            self.actions.append(action)


def one_forward_one_backward(
    row: Row,
    forwards: Sequence[int],
    backwards: Sequence[int],
    *,
    warm_up: int,
    weight_lag: int | None = None,
) -> tuple[Action, ...]:
    """Return `warm_up` forwards, then a forward and a backward in turn, then the backwards that are left.

    Args:
        row: An empty row of the rank.
        forwards: The stages of the forwards, in order.
        backwards: The stages of the backwards, in order; as many.
        warm_up: Forwards before the first pair; may exceed the forwards there are.
        weight_lag: None for full backwards; otherwise backwards are split, and each input gradient but the
            first `weight_lag` is followed by the oldest weight gradient due.
    """
    warm_up = min(warm_up, len(forwards))
    for stage in forwards[:warm_up]:
        row.forward(stage)
    for step, stage in enumerate(backwards):
        if warm_up + step < len(forwards):
            row.forward(forwards[warm_up + step])
        if weight_lag is None:
            row.backward(stage)
            continue
        row.input_grad(stage)
        if step >= weight_lag:
            row.weight_grad()
    return row.finish()
