"""The exact scheduler for small cases: constraint programming with OR-tools' CP-SAT.

Not a dependency of dtk: `pip install 'dtk-llm[exact]'` brings it. Transfers are delays here, while the
simulator gives each directed pair of ranks one transfer at a time; the two differ only where a transfer takes
longer than the compute action before it, and the caller times the answer again.
"""

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from dtk.errors import NotTestableError
from dtk.pipeline.optimal.problem import SchedulingProblem

__all__ = ["Exact", "solve"]


@dataclass(frozen=True)
class Exact:
    """What CP-SAT found within its time.

    Attributes:
        order: For each rank its tasks, or None if it found no schedule in time.
        lower_bound_ns: What it proved that no schedule can beat.
        proven: Whether `order` reaches that.
    """

    order: list[list[int]] | None
    lower_bound_ns: int
    proven: bool


def solve(problem: SchedulingProblem, *, time_limit_s: float, threads: int = 1, seed: int = 0) -> Exact:
    """Return the optimum, or what was found and proved within the time.

    Raises:
        NotTestableError: If OR-tools is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ModuleNotFoundError as error:
        raise NotTestableError(
            "exact scheduling needs OR-tools, which is not installed", hint="pip install 'dtk-llm[exact]'"
        ) from error
    model = _Model(cp_model, problem)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = threads
    solver.parameters.random_seed = seed
    # Its own handler would stay behind and end the process at the next Ctrl-C.
    solver.parameters.catch_sigint_signal = False
    status = _solve_interruptibly(solver, model.model)
    bound = round(solver.best_objective_bound)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Exact(None, max(bound, 0), proven=False)
    return Exact(model.order(solver), bound, proven=status == cp_model.OPTIMAL)


def _solve_interruptibly(solver: Any, model: Any) -> Any:
    """Solve beside the main thread, which alone hears Ctrl-C; that stops the solver and goes on up."""
    with ThreadPoolExecutor(max_workers=1) as beside:
        solving = beside.submit(solver.solve, model)
        try:
            while True:
                done, _ = wait([solving], timeout=0.1)
                if done:
                    return solving.result()
        except KeyboardInterrupt:
            solver.stop_search()
            raise


class _Model:
    """Start times as integers; a rank runs one task at a time; memory is a cumulative resource."""

    def __init__(self, cp_model: Any, problem: SchedulingProblem) -> None:
        self.model = cp_model.CpModel()
        self._problem = problem
        costs = problem.costs
        self._durations = (costs.forward_ns, costs.input_grad_ns, costs.weight_grad_ns)
        self._horizon = problem.num_microbatches * sum(
            sum(times)
            for times in (*self._durations, costs.activation_transfer_ns, costs.gradient_transfer_ns)
        )
        self._start = [self.model.new_int_var(0, self._horizon, "") for _ in range(problem.num_tasks)]
        makespan = self.model.new_int_var(0, self._horizon, "makespan")
        for task in range(problem.num_tasks):
            self.model.add(makespan >= self._end(task))
        for stage in range(problem.num_stages):
            for microbatch in range(problem.num_microbatches):
                self._add_dependencies(stage, microbatch)
        for rank in range(problem.num_ranks):
            self._add_rank(rank)
        self.model.minimize(makespan)

    def order(self, solver: Any) -> list[list[int]]:
        """Return each rank's tasks by their start; what takes no time comes before what starts with it."""
        problem = self._problem
        rows: list[list[int]] = [[] for _ in range(problem.num_ranks)]

        def key(task: int) -> tuple[int, ...]:
            kind, rest = divmod(task, problem.num_stages * problem.num_microbatches)
            stage, microbatch = divmod(rest, problem.num_microbatches)
            # Where several take no time at once, a micro-batch goes forward through the stages, then back.
            way = -stage if kind == 1 else stage
            start = self._start[task]
            return solver.value(start), solver.value(self._end(task)), microbatch, kind, way

        by_time = sorted(range(problem.num_tasks), key=key)
        for task in by_time:
            rows[problem.rank_of_stage[task // problem.num_microbatches % problem.num_stages]].append(task)
        return rows

    def _task(self, kind: int, stage: int, microbatch: int) -> int:
        return (kind * self._problem.num_stages + stage) * self._problem.num_microbatches + microbatch

    def _duration(self, task: int) -> int:
        kind, rest = divmod(task, self._problem.num_stages * self._problem.num_microbatches)
        return self._durations[kind][rest // self._problem.num_microbatches]

    def _end(self, task: int) -> Any:
        return self._start[task] + self._duration(task)

    def _after(self, later: int, earlier: int, delay: int = 0) -> None:
        self.model.add(self._start[later] >= self._end(earlier) + delay)

    def _add_dependencies(self, stage: int, microbatch: int) -> None:
        forward, input_grad, weight_grad = (self._task(kind, stage, microbatch) for kind in range(3))
        costs, ranks = self._problem.costs, self._problem.rank_of_stage
        self._after(input_grad, forward)
        self._after(weight_grad, input_grad)
        if stage > 0:
            apart = ranks[stage] != ranks[stage - 1]
            there = costs.activation_transfer_ns[stage - 1] if apart else 0
            back = costs.gradient_transfer_ns[stage] if apart else 0
            self._after(forward, self._task(0, stage - 1, microbatch), there)
            self._after(self._task(1, stage - 1, microbatch), input_grad, back)
        if microbatch > 0:  # alike, so their order is free to choose
            for task in (forward, input_grad, weight_grad):
                self._after(task, task - 1)

    def _add_rank(self, rank: int) -> None:
        problem = self._problem
        stages = [stage for stage, held in enumerate(problem.rank_of_stage) if held == rank]
        tasks = [
            self._task(kind, stage, microbatch)
            for kind in range(3)
            for stage in stages
            for microbatch in range(problem.num_microbatches)
        ]
        self.model.add_no_overlap(
            [
                self.model.new_fixed_size_interval_var(self._start[task], self._duration(task), "")
                for task in tasks
            ]
        )
        held: list[Any] = []
        sizes: list[int] = []
        for stage in stages:
            for microbatch in range(problem.num_microbatches):
                forward, input_grad, weight_grad = (self._task(kind, stage, microbatch) for kind in range(3))
                held.append(self._interval(self._start[forward], self._end(input_grad)))
                sizes.append(problem.costs.activation_bytes[stage])
                held.append(self._interval(self._end(input_grad), self._end(weight_grad)))
                sizes.append(problem.costs.weight_grad_bytes[stage])
        self.model.add_cumulative(held, sizes, problem.memory_limit[rank])

    def _interval(self, start: Any, end: Any) -> Any:
        return self.model.new_interval_var(start, self.model.new_int_var(0, self._horizon, ""), end, "")
