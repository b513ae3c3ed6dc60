"""Random schedules that can run, and random costs: what generators make is only a small part of them."""

import random
from collections.abc import Iterator

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule

__all__ = ["random_costs", "random_schedule", "with_parameter_actions"]

COSTS = [
    "forward_ns", "input_grad_ns", "weight_grad_ns", "activation_transfer_ns", "gradient_transfer_ns",
    "unshard_ns", "reduce_grad_ns", "optimizer_ns", "activation_bytes", "weight_grad_bytes",
    "parameter_bytes", "gradient_bytes", "activation_message_bytes",
]  # fmt: skip


def random_schedule(source: random.Random, *, pairs: bool = True, parameters: bool = True) -> Schedule:
    """Return a schedule in an order that respects all dependencies, over any placement of stages."""
    num_ranks, num_stages = source.randint(1, 4), source.randint(1, 6)
    num_microbatches = source.randint(1, 5)
    rank_of_stage = tuple(source.randrange(num_ranks) for _ in range(num_stages))
    rows: list[list[Action]] = [[] for _ in range(num_ranks)]
    pairing = source.random() if pairs else 0.0
    previous: list[Action] = []
    for action in _in_order(source, num_stages, num_microbatches):
        row = rows[rank_of_stage[action.stage]]
        # Only neighbours in the order of all: nothing may have waited for the forward in between.
        if row is previous and source.random() < pairing and _can_pair(row[-1], action):
            row[-1] = Action.pair(row[-1], action)
        else:
            row.append(action)
        previous = row
    if parameters:
        rows = [with_parameter_actions(source, row) for row in rows]
    return Schedule("random", rank_of_stage, tuple(map(tuple, rows)), num_microbatches)


def _in_order(source: random.Random, num_stages: int, num_microbatches: int) -> Iterator[Action]:
    split = source.choice([0.0, 0.5, 1.0])
    chains = []  # of each micro-batch what comes next; its weight gradients may come at any time
    for microbatch in range(num_microbatches):
        forwards = [Action(stage, Kind.FORWARD, microbatch) for stage in range(num_stages)]
        kinds = [
            Kind.INPUT_GRAD if source.random() < split else Kind.FULL_BACKWARD for _ in range(num_stages)
        ]
        backwards = [Action(stage, kinds[stage], microbatch) for stage in reversed(range(num_stages))]
        chains.append([*forwards, *backwards])
    weights: list[Action] = []
    eager = source.random()
    while chains or weights:
        if weights and (not chains or source.random() < eager):
            yield weights.pop(source.randrange(len(weights)))
            continue
        chain = source.choice(chains)
        action = chain.pop(0)
        if not chain:
            chains.remove(chain)
        yield action
        if action.kind is Kind.INPUT_GRAD:
            weights.append(action._replace(kind=Kind.WEIGHT_GRAD))


def _can_pair(first: Action, second: Action) -> bool:
    backwards = {Kind.FULL_BACKWARD, Kind.INPUT_GRAD}
    return first.kind is Kind.FORWARD and second.kind in backwards and first.microbatch != second.microbatch


def with_parameter_actions(source: random.Random, row: list[Action]) -> list[Action]:
    """Put gathers, releases and reductions anywhere, sensible or not."""
    often = source.choice([0.0, 0.1, 0.5])
    stages = sorted({part.stage for action in row for part in action.parts})
    result: list[Action] = []
    for action in [*row, None]:
        while stages and source.random() < often:
            kind = source.choice([Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD])
            result.append(Action(source.choice(stages), kind))
        if action is not None:
            result.append(action)
    return result


def random_costs(source: random.Random, num_stages: int) -> StageCosts:
    """Return costs of which many are zero or equal, so that many things happen at the same time."""
    most = source.choice([1, 3, 1000])
    values: dict[str, list[int] | int] = {}
    for name in COSTS:
        zero = source.random() < 0.3
        values[name] = 0 if zero else [source.randint(0, most) for _ in range(num_stages)]
    return StageCosts.of(num_stages, **values)  # type: ignore[arg-type]
