"""The best schedule that stage costs and a memory limit allow, and how far it is from what is possible.

`optimise` answers for one placement of stages; `optimal_schedule` tries the placements that the named
schedules use. Source: the automatic scheduler of zero-bubble pipelines (arXiv 2401.10241, section 4), with
our own search.
"""

from dtk.pipeline.optimal.optimise import OptimalSchedule, optimal_schedule, optimise
from dtk.pipeline.optimal.problem import SchedulingProblem

__all__ = ["OptimalSchedule", "SchedulingProblem", "optimal_schedule", "optimise"]
