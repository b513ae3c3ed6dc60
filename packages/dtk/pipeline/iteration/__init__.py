"""How long an iteration of a training run takes and what its ranks hold: costs under a schedule."""

from dtk.pipeline.iteration.estimate import Estimate, estimate
from dtk.pipeline.iteration.run import ScheduleChoice, TrainingRun

__all__ = ["Estimate", "ScheduleChoice", "TrainingRun", "estimate"]
