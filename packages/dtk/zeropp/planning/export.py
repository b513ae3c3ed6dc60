"""A plan's files: schedules in torch's form, recipes, timelines."""

import logging
from pathlib import Path
from typing import Final

from dtk.pipeline.draw import timeline_of
from dtk.pipeline.lowering import add_transfers
from dtk.pipeline.simulate import simulate_memory, simulate_tasks
from dtk.pipeline.text import schedule_to_text
from dtk.timeline import Timeline
from dtk.timeline import save as save_timeline
from dtk.timeline.files import write_atomically
from dtk.zeropp.planning.evaluation import Evaluated
from dtk.zeropp.planning.stock import compute_schedule, gib, stock_memory
from dtk.zeropp.planning.torchtitan import recipe_python, recipe_toml

__all__ = ["export_plan", "plan_timeline"]

logger = logging.getLogger(__name__)

_CSV: Final = "schedule.csv"


def export_plan(evaluated: Evaluated, folder: Path, *, title: str) -> None:
    """Write all files of a plan into a folder, each in one piece; warn where stock torch cannot hold it.

    Raises:
        OSError: If the folder cannot be written.
    """
    texts = {
        _CSV: schedule_to_text(compute_schedule(evaluated)),
        "schedule_with_communication.csv": schedule_to_text(add_transfers(evaluated.estimate.schedule)),
        "torchtitan.toml": recipe_toml(evaluated, _CSV),
        "torchtitan_recipe.py": recipe_python(evaluated, _CSV),
    }
    stock = stock_memory(evaluated)
    if not stock.fits:
        logger.warning(
            "the torchtitan recipes do not fit: stock torch holds %s (torchtitan 0.2: %s) on the fullest "
            "rank where %s may be used and the plan holds %s, since it keeps the gradients of all stages "
            "until their last micro-batch",
            *map(gib, (stock.least_bytes, stock.default_bytes, stock.limit_bytes, stock.plan_bytes)),
        )
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    timeline = plan_timeline(evaluated, title)
    save_timeline(timeline, folder / "timeline.json.gz")
    save_timeline(timeline, folder / "timeline.svg")


def plan_timeline(evaluated: Evaluated, title: str) -> Timeline:
    """Return what each pipeline rank does when, and what its schedule makes it hold."""
    schedule, costs = evaluated.estimate.schedule, evaluated.estimate.costs
    return timeline_of(
        simulate_tasks(schedule, costs),
        title=title,
        memory=simulate_memory(schedule, costs),
        num_ranks=schedule.num_ranks,
    )
