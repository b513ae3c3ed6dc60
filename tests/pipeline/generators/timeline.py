"""A small executor for tests, apart from dtk's simulator: earliest starts, no memory, no streams."""

from dataclasses import dataclass

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.schedule import Schedule

_DONE_AS = {Kind.FULL_BACKWARD: Kind.INPUT_GRAD}


@dataclass
class Timeline:
    spans: list[list[tuple[int, int]]]  # for each rank (start, end) of each action

    @property
    def makespan(self) -> int:
        return max(row[-1][1] for row in self.spans)

    @property
    def idle(self) -> list[int]:
        return [self.makespan - sum(end - start for start, end in row) for row in self.spans]

    @property
    def longest_own_time(self) -> int:
        return max(row[-1][1] - row[0][0] for row in self.spans)


def execute(
    schedule: Schedule, *, forward: int = 1, input_grad: int = 1, weight_grad: int = 1, transfer: int = 0
) -> Timeline:
    """Run every action as early as its order and its inputs allow; fails where ranks wait for each other."""
    duration = {
        Kind.FORWARD: forward,
        Kind.INPUT_GRAD: input_grad,
        Kind.WEIGHT_GRAD: weight_grad,
        Kind.FULL_BACKWARD: input_grad + weight_grad,
    }
    ended: dict[tuple[int, Kind, int | None], int] = {}
    spans: list[list[tuple[int, int]]] = [[] for _ in schedule.actions]
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(schedule.actions):
            while len(spans[rank]) < len(row):
                action = row[len(spans[rank])]
                ready = _ready_time(schedule, action, ended, transfer)
                if ready is None:
                    break
                start = max(ready, spans[rank][-1][1] if spans[rank] else 0)
                end = start + sum(duration[part.kind] for part in action.parts)
                spans[rank].append((start, end))
                for part in action.parts:
                    ended[part.stage, _DONE_AS.get(part.kind, part.kind), part.microbatch] = end
                moved = True
    waiting = [
        str(row[len(done)]) for row, done in zip(schedule.actions, spans, strict=True) if len(done) < len(row)
    ]
    assert not waiting, f"deadlock of {schedule.name}: {waiting}"
    return Timeline(spans)


def _ready_time(
    schedule: Schedule, action: Action, ended: dict[tuple[int, Kind, int | None], int], transfer: int
) -> int | None:
    ready = 0
    for part in action.parts:
        for stage, kind in _inputs(part, schedule.num_stages):
            end = ended.get((stage, kind, part.microbatch))
            if end is None:
                return None
            apart = schedule.rank_of_stage[stage] != schedule.rank_of_stage[part.stage]
            ready = max(ready, end + transfer * apart)
    return ready


def _inputs(part: Action, num_stages: int) -> list[tuple[int, Kind]]:
    match part.kind:
        case Kind.FORWARD:
            return [(part.stage - 1, Kind.FORWARD)] if part.stage else []
        case Kind.WEIGHT_GRAD:
            return [(part.stage, Kind.INPUT_GRAD)]
        case _:
            own = [(part.stage, Kind.FORWARD)]
            return own + ([(part.stage + 1, Kind.INPUT_GRAD)] if part.stage + 1 < num_stages else [])


def draw(schedule: Schedule) -> str:
    """Draw unit-time slots: F12 is the forward of micro-batch 2 on chunk 1, B12 its input gradient."""
    timeline = execute(schedule)
    lines = []
    for rank, row in enumerate(schedule.actions):
        slots = ["..."] * timeline.makespan
        for action, (start, _) in zip(row, timeline.spans[rank], strict=True):
            chunk = schedule.stages_of_rank[rank].index(action.stage)
            letter = "B" if action.kind is Kind.INPUT_GRAD else action.kind.value
            slots[start] = f"{letter}{chunk}{action.microbatch}"
        lines.append(f"r{rank} {' '.join(slots)}")
    return "\n".join(lines)
