"""When each job of a schedule can start at the earliest, and what must still pass after it has ended.

Micro-batches are alike, so the i-th F of a stage stands for the i-th in the order of execution, and likewise
its I and W; nothing is said about which micro-batch that is. See `dtk.pipeline.bounds` for what schedules
these times hold for.
"""

from dataclasses import dataclass

from dtk.pipeline.bounds.memory import FreedMemory, FreeingWork, memory_lags
from dtk.pipeline.bounds.problem import BoundedProblem
from dtk.pipeline.bounds.work import RankWork

__all__ = ["Windows", "releases", "tails"]


@dataclass(frozen=True)
class Windows:
    """For each stage a time for each of its M jobs of a kind, ascending: releases, or tails."""

    forward: list[list[int]]
    input_grad: list[list[int]]
    weight_grad: list[list[int]]

    @classmethod
    def of(cls, num_stages: int) -> "Windows":
        """Return windows without jobs."""
        forward, input_grad, weight_grad = ([list[int]() for _ in range(num_stages)] for _ in range(3))
        return cls(forward, input_grad, weight_grad)


def releases(problem: BoundedProblem) -> Windows:
    """Return times before which the i-th job of a stage and kind cannot start.

    Four reasons, the latest counts; i counts from 0:

    - Jobs of a stage run one at a time: the i-th starts a job's length after the one before it.
    - i + 1 inputs have arrived, each after a job of the neighbouring stage, one transfer at a time.
    - The rank has other work that comes first. When the i-th I of stage s starts, i + 1 micro-batches have
      had F on all the rank's stages and I on its later ones, and i have had I on s; likewise for F and W.
    - Memory. When the i-th F of stage s starts, i + 1 micro-batches have taken their activations on s and on
      the rank's earlier stages, and all of that beyond the limit has been freed: a part after I, the rest
      after W. These I and W belong to micro-batches whose F on s has started before, hence they are among the
      first i of each stage. When the i-th I of s starts, i + 1 micro-batches have taken activations on all
      stages of the rank, and what they have freed is of s and earlier stages among the first i, of later
      stages among the first i + 1. (Any further micro-batch holds its activation on s at least.) Freeing is
      work of the rank, too, that comes before.
    """
    costs, ranks, last = problem.costs, problem.rank_of_stage, problem.num_stages - 1
    times, work, kept = Windows.of(problem.num_stages), RankWork(problem), problem.kept
    memory, frees = FreedMemory(problem, costs.activation_bytes), FreeingWork(problem)
    inputs, gradients = [0] * (last + 1), [0] * (last + 1)  # arrival of the latest at each stage
    for i in range(problem.num_microbatches):
        for stage in range(last + 1):
            rank, length = ranks[stage], costs.forward_ns[stage]
            lead = problem.stages_of_rank[rank][0]
            first = times.forward[lead][0] if i or stage > lead else 0
            loaded = first + work.before_f(stage, i) + frees.before_f(stage, i)
            start = max(inputs[stage], loaded, memory.for_stages_up_to(stage, i + 1))
            _append(times.forward[stage], start, length)
            end = times.forward[stage][i] + length
            if stage < last:
                inputs[stage + 1] = _arrival(
                    end, inputs[stage + 1], costs.activation_transfer_ns[stage], ranks[stage + 1] == rank
                )
            else:
                gradients[last] = end
        for stage in range(last, -1, -1):
            rank, length = ranks[stage], costs.input_grad_ns[stage]
            first = times.forward[problem.stages_of_rank[rank][0]][0]
            loaded = first + work.before_i(stage, i) + frees.before_i(stage, i)
            start = max(gradients[stage], loaded, memory.for_all_stages(stage, i + 1))
            _append(times.input_grad[stage], start, length)
            end = times.input_grad[stage][i] + length
            if stage > 0:
                gradients[stage - 1] = _arrival(
                    end, gradients[stage - 1], costs.gradient_transfer_ns[stage], ranks[stage - 1] == rank
                )
            memory.free(stage, end, costs.activation_bytes[stage] - kept[stage])
            start, length = max(end, first + work.before_w(stage, i)), costs.weight_grad_ns[stage]
            _append(times.weight_grad[stage], start, length)
            memory.free(stage, times.weight_grad[stage][i] + length, kept[stage])
    return times


def tails(problem: BoundedProblem) -> Windows:
    """Return times that must pass after the i-th last job of a stage and kind has ended, i from 0.

    The same reasons backward in time: W wait for nothing, I for W and for the I of the stage before, F for
    the F of the stage after. Memory: of the activations whose I (or W) are still to come, all beyond the
    limit are not held yet, and their F are to come, too. From the i-th last I of stage s on there are i + 1 I
    of each of the rank's stages up to s, from the i-th last W on i + 1 W of s. The micro-batches of the F to
    come have their I and W on s later still, hence these F are among the last i of each stage.
    """
    costs, ranks, last = problem.costs, problem.rank_of_stage, problem.num_stages - 1
    times, work = Windows.of(problem.num_stages), RankWork(problem)
    full, kept = FreedMemory(problem, costs.activation_bytes), FreedMemory(problem, problem.kept)
    lags = memory_lags(problem)
    lasting: list[list[int]] = [[] for _ in ranks]  # tails of F, their own time included
    inputs, gradients = [0] * (last + 1), [0] * (last + 1)
    for i in range(problem.num_microbatches):
        for stage in range(last + 1):
            rank, length = ranks[stage], costs.weight_grad_ns[stage]
            after_i = [lasting[later][i - lag] for later, lag, _ in lags[stage] if i >= lag]
            after_w = [lasting[later][i - lag] for later, _, lag in lags[stage] if i >= lag]
            rest = max(kept.for_stage(stage, i + 1), *after_w, 0)
            _append(times.weight_grad[stage], rest, length)
            end = times.weight_grad[stage][i] + length
            held = full.for_stages_up_to(stage, i + 1)
            rest = max(end, gradients[stage], work.after_i(stage, i), held, *after_i)
            _append(times.input_grad[stage], rest, costs.input_grad_ns[stage])
            end = times.input_grad[stage][i] + costs.input_grad_ns[stage]
            if stage < last:
                gradients[stage + 1] = _arrival(
                    end, gradients[stage + 1], costs.gradient_transfer_ns[stage + 1], ranks[stage + 1] == rank
                )
            else:
                inputs[last] = end
        for stage in range(last, -1, -1):
            rank, length = ranks[stage], costs.forward_ns[stage]
            _append(times.forward[stage], max(inputs[stage], work.after_f(stage, i)), length)
            end = times.forward[stage][i] + length
            if stage > 0:
                inputs[stage - 1] = _arrival(
                    end, inputs[stage - 1], costs.activation_transfer_ns[stage - 1], ranks[stage - 1] == rank
                )
            lasting[stage].append(end)
            full.free(stage, end, full.sizes[stage])
            kept.free(stage, end, kept.sizes[stage])
    return times


def _append(times: list[int], time: int, length: int) -> None:
    times.append(max(time, times[-1] + length) if times else time)


def _arrival(end: int, previous: int, transfer: int, same_rank: bool) -> int:
    return end if same_rank else max(end, previous) + transfer
