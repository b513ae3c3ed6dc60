"""The task graph of a schedule: compute actions, transfers, gathers and reductions, each on its stream.

Everything is built on whole arrays; a schedule of half a million actions takes a fraction of a second.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dtk.pipeline.action import Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.listing import CODES, Indices, Listing
from dtk.simulation.graph import TaskGraph

__all__ = ["Needs", "Plan", "make_plan"]

_NONE: Final = -1
_BACKWARDS: Final = (Kind.FULL_BACKWARD, Kind.INPUT_GRAD)


@dataclass(frozen=True, eq=False)
class Needs:
    """What each part of the listing waits for, in numbers of tasks; [Q] each, -1 for nothing.

    A part that waits for what is not in the schedule waits for its own task, which never starts then.

    Attributes:
        arrival: The output of the stage before or after; its transfer, where that is on another rank.
        made: The compute action that makes this output.
        own: The forward of a backward, the input gradient of a weight gradient.
        gathered: The last gather of the stage's parameters listed before.
    """

    arrival: Indices
    made: Indices
    own: Indices
    gathered: Indices


@dataclass(frozen=True, eq=False)
class Plan:
    """The graph, and what its tasks stand for.

    Tasks are numbered in this order: all compute actions as in the listing, then one for each of
    `sending_parts`, `unshard_parts` and `reduce_parts`.

    Attributes:
        graph: The graph.
        needs: What each part waits for.
        sending_parts: Compute parts whose output crosses ranks.
        receivers: The rank that each of them sends to.
        unshard_parts: The UNSHARD actions.
        reduce_parts: The REDUCE_GRAD actions.
    """

    graph: TaskGraph
    needs: Needs
    sending_parts: Indices
    receivers: Indices
    unshard_parts: Indices
    reduce_parts: Indices


def make_plan(schedule: Schedule, costs: StageCosts, listing: Listing) -> Plan:
    """Return the graph of a schedule that `list_actions` has checked."""
    num_compute = len(listing.action_of_task)
    sends = _sends(schedule, costs, listing)
    unshards, reductions = listing.parts_of(Kind.UNSHARD), listing.parts_of(Kind.REDUCE_GRAD)
    first_unshard = num_compute + len(sends.parts)
    unshard_tasks = np.arange(first_unshard, first_unshard + len(unshards))
    needs = _needs(schedule, listing, sends, unshards, unshard_tasks)
    others = np.concatenate([sends.parts, unshards, reductions])
    durations = np.concatenate(
        [
            _compute_durations(costs, listing),
            sends.durations,
            np.array(costs.unshard_ns, np.int64)[listing.stage[unshards]],
            np.array(costs.reduce_grad_ns, np.int64)[listing.stage[reductions]],
        ]
    )
    num_ranks = schedule.num_ranks
    resources = np.concatenate(
        [
            np.repeat(np.arange(num_ranks), np.diff(listing.tasks_before_rank)),
            3 * num_ranks + sends.links,
            num_ranks + listing.rank[unshards],
            2 * num_ranks + listing.rank[reductions],
        ]
    )
    offsets, predecessors = _predecessors(listing, needs, listing.task[others])
    graph = TaskGraph(
        durations,
        resources.astype(np.int32),
        np.concatenate([np.arange(num_compute), others]),
        offsets,
        predecessors,
        np.zeros(3 * num_ranks + 2 * schedule.num_stages, np.uint8),
    )
    return Plan(graph, needs, sends.parts, sends.receivers, unshards, reductions)


def _compute_durations(costs: StageCosts, listing: Listing) -> NDArray[np.int64]:
    """Return the time of each compute action; a pair takes the sum of its parts'."""
    by_kind = np.zeros((len(CODES), costs.num_stages), np.int64)
    by_kind[CODES[Kind.FORWARD]] = costs.forward_ns
    by_kind[CODES[Kind.INPUT_GRAD]] = costs.input_grad_ns
    by_kind[CODES[Kind.WEIGHT_GRAD]] = costs.weight_grad_ns
    by_kind[CODES[Kind.FULL_BACKWARD]] = np.add(costs.input_grad_ns, costs.weight_grad_ns)
    parts = np.flatnonzero(listing.is_compute)
    times = by_kind[listing.kind[parts], listing.stage[parts]]
    durations = np.zeros(len(listing.action_of_task), np.int64)
    np.add.at(durations, listing.task[parts], times)
    return durations


@dataclass(frozen=True, eq=False)
class _Sends:
    """Outputs that cross ranks; `links` numbers the pairs of ranks."""

    parts: Indices
    receivers: Indices
    links: Indices
    durations: NDArray[np.int64]


def _sends(schedule: Schedule, costs: StageCosts, listing: Listing) -> _Sends:
    rank_of_stage = np.array(schedule.rank_of_stage, np.int64)
    forwards, backwards = listing.parts_of(Kind.FORWARD), listing.parts_of(*_BACKWARDS)
    forwards = forwards[listing.stage[forwards] < schedule.num_stages - 1]
    backwards = backwards[listing.stage[backwards] > 0]
    parts = np.concatenate([forwards, backwards])
    receivers = rank_of_stage[np.concatenate([listing.stage[forwards] + 1, listing.stage[backwards] - 1])]
    durations = np.concatenate(
        [
            np.array(costs.activation_transfer_ns, np.int64)[listing.stage[forwards]],
            np.array(costs.gradient_transfer_ns, np.int64)[listing.stage[backwards]],
        ]
    )
    crosses = np.flatnonzero(receivers != listing.rank[parts])
    order = crosses[np.argsort(parts[crosses], kind="stable")]
    parts, receivers, durations = parts[order], receivers[order], durations[order]
    _, links = np.unique(listing.rank[parts] * schedule.num_ranks + receivers, return_inverse=True)
    return _Sends(parts, receivers, links, durations)


def _needs(
    schedule: Schedule, listing: Listing, sends: _Sends, unshards: Indices, unshard_tasks: Indices
) -> Needs:
    num_microbatches, task = schedule.num_microbatches, listing.task
    leaves = task.copy()  # the task after which a part's output is where it is needed
    leaves[sends.parts] = len(listing.action_of_task) + np.arange(len(sends.parts))
    cell = listing.stage * num_microbatches + listing.microbatch
    made, arrival, own = (np.full(len(task), _NONE) for _ in range(3))

    def makers(*kinds: Kind) -> Indices:
        """Return the part that does one of `kinds` for each stage and micro-batch, -1 where none does."""
        table = np.full(schedule.num_stages * num_microbatches, _NONE)
        parts = listing.parts_of(*kinds)
        table[cell[parts]] = parts
        return table

    def wait(parts: Indices, maker: Indices, *targets: tuple[Indices, Indices]) -> None:
        """Let parts wait for their makers; for themselves, where there is none."""
        for target, values in targets:
            target[parts] = np.where(maker >= 0, values[maker], task[parts])

    forwards, backwards = listing.parts_of(Kind.FORWARD), listing.parts_of(*_BACKWARDS)
    weights = listing.parts_of(Kind.WEIGHT_GRAD)
    forward_of, backward_of = makers(Kind.FORWARD), makers(*_BACKWARDS)
    later = forwards[listing.stage[forwards] > 0]
    earlier = backwards[listing.stage[backwards] < schedule.num_stages - 1]
    wait(later, forward_of[cell[later] - num_microbatches], (made, task), (arrival, leaves))
    wait(earlier, backward_of[cell[earlier] + num_microbatches], (made, task), (arrival, leaves))
    wait(backwards, forward_of[cell[backwards]], (own, task))
    wait(weights, makers(Kind.INPUT_GRAD)[cell[weights]], (own, task))
    return Needs(arrival, made, own, _gathered(listing, unshards, unshard_tasks))


def _gathered(listing: Listing, unshards: Indices, unshard_tasks: Indices) -> Indices:
    """Return for each part the task of the last UNSHARD of its stage that is listed before it."""
    num_parts = len(listing.stage)
    if not len(unshards):
        return np.full(num_parts, _NONE)
    order = np.lexsort((unshards, listing.stage[unshards]))
    keys = listing.stage[unshards[order]] * num_parts + unshards[order]
    last = np.searchsorted(keys, listing.stage * num_parts + np.arange(num_parts)) - 1
    candidates = order[last]  # any where last is -1, which `same` leaves out
    same = (last >= 0) & (listing.stage[unshards[candidates]] == listing.stage)
    return np.where(same & listing.is_compute, unshard_tasks[candidates], _NONE)


def _predecessors(
    listing: Listing, needs: Needs, single: Indices
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the edges of all compute tasks, then of tasks that wait for a single one or, at -1, for none."""
    parts = np.flatnonzero(listing.is_compute)
    task = listing.task[parts]
    is_second = np.diff(task, prepend=-1) == 0
    columns = np.full((len(listing.action_of_task), 6 if is_second.any() else 3), _NONE)
    # What is listed before on the same rank has ended anyhow.
    own = np.where(needs.own[parts] < task, _NONE, needs.own[parts])
    for place, values in enumerate((own, needs.arrival[parts], needs.gathered[parts])):
        columns[task, 3 * is_second + place] = values
    counts = np.concatenate([(columns >= 0).sum(axis=1), single >= 0])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    predecessors = np.concatenate([columns[columns >= 0], single[single >= 0]])
    return offsets, predecessors.astype(np.int32)
