"""The work of a rank that comes before, or after, a job of one of its stages in any case."""

from dtk.pipeline.bounds.problem import BoundedProblem

__all__ = ["RankWork"]


class RankWork:
    """What a stage's rank does before, or after, the i-th (last) job of the stage, at least."""

    def __init__(self, problem: BoundedProblem) -> None:
        costs = problem.costs
        self.costs = costs
        f_through, i_through, w_through = (
            problem.sums_up_to(times)
            for times in (costs.forward_ns, costs.input_grad_ns, costs.weight_grad_ns)
        )
        ends = [problem.stages_of_rank[rank][-1] for rank in problem.rank_of_stage]
        stages = range(problem.num_stages)
        self._f_before = [f_through[stage] - costs.forward_ns[stage] for stage in stages]
        self._i_before = [i_through[stage] - costs.input_grad_ns[stage] for stage in stages]
        self._f_all = [f_through[end] for end in ends]
        self._f_after = [self._f_all[stage] - f_through[stage] for stage in stages]
        self._i_after = [i_through[ends[stage]] - i_through[stage] for stage in stages]
        self._w_through = w_through
        self._back_all = [i_through[end] + w_through[end] for end in ends]

    def before_f(self, stage: int, i: int) -> int:
        """Return the work before the i-th F."""
        return (i + 1) * self._f_before[stage] + i * self.costs.forward_ns[stage]

    def before_i(self, stage: int, i: int) -> int:
        """Return the work before the i-th I."""
        own = i * self.costs.input_grad_ns[stage]
        return (i + 1) * (self._f_all[stage] + self._i_after[stage]) + own

    def before_w(self, stage: int, i: int) -> int:
        """Return the work before the i-th W."""
        through = self._f_all[stage] + self._i_after[stage] + self.costs.input_grad_ns[stage]
        return (i + 1) * through + i * self.costs.weight_grad_ns[stage]

    def after_i(self, stage: int, i: int) -> int:
        """Return the work after the i-th last I."""
        through = self._i_before[stage] + self._w_through[stage]
        return (i + 1) * through + i * self.costs.input_grad_ns[stage]

    def after_f(self, stage: int, i: int) -> int:
        """Return the work after the i-th last F."""
        through = self._back_all[stage] + self._f_after[stage]
        return (i + 1) * through + i * self.costs.forward_ns[stage]
