"""A plan's files: schedules in torch's form, recipes, timelines."""

from pathlib import Path
from typing import Final

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.draw import timeline_of
from dtk.pipeline.lowering import add_transfers
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate_memory, simulate_tasks
from dtk.pipeline.text import schedule_to_text
from dtk.timeline import Timeline
from dtk.timeline import save as save_timeline
from dtk.timeline.files import write_atomically
from dtk.zeropp.planning.evaluation import Evaluated
from dtk.zeropp.planning.torchtitan import recipe_python, recipe_toml

__all__ = ["compute_schedule", "export_plan", "plan_timeline"]

_CSV: Final = "schedule.csv"


def export_plan(evaluated: Evaluated, folder: Path, *, title: str) -> None:
    """Write all files of a plan into a folder, each in one piece.

    Raises:
        OSError: If the folder cannot be written.
    """
    texts = {
        _CSV: schedule_to_text(compute_schedule(evaluated)),
        "schedule_with_communication.csv": schedule_to_text(add_transfers(evaluated.estimate.schedule)),
        "torchtitan.toml": recipe_toml(evaluated, _CSV),
        "torchtitan_recipe.py": recipe_python(evaluated, _CSV),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    timeline = plan_timeline(evaluated, title)
    save_timeline(timeline, folder / "timeline.json.gz")
    save_timeline(timeline, folder / "timeline.svg")


def compute_schedule(evaluated: Evaluated) -> Schedule:
    """Return the compute actions for torch's runtime.

    Where weight gradients are not kept back, the two halves of a backward are one action: torch's own split
    computes again what is recomputed, once for each half.
    """
    schedule = evaluated.estimate.schedule.compute_only()
    if evaluated.candidate.splits_backward:
        return schedule
    return schedule.with_actions([_joined(row) for row in schedule.actions])


def _joined(row: tuple[Action, ...]) -> list[Action]:
    joined: list[Action] = []
    for action in row:
        before = joined[-1] if joined else None
        halves = before is not None and (before.stage, before.microbatch) == (action.stage, action.microbatch)
        if halves and before and before.kind is Kind.INPUT_GRAD and action.kind is Kind.WEIGHT_GRAD:
            joined[-1] = before._replace(kind=Kind.FULL_BACKWARD)
        else:
            joined.append(action)
    return joined


def plan_timeline(evaluated: Evaluated, title: str) -> Timeline:
    """Return what each pipeline rank does when, and what its schedule makes it hold."""
    schedule, costs = evaluated.estimate.schedule, evaluated.estimate.costs
    return timeline_of(
        simulate_tasks(schedule, costs),
        title=title,
        memory=simulate_memory(schedule, costs),
        num_ranks=schedule.num_ranks,
    )
