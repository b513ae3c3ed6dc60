"""Plans in words and in cells of tables."""

from collections.abc import Callable, Mapping

from dtk.zeropp.planning.evaluation import Evaluated
from dtk.zeropp.planning.problem import PlanProblem
from dtk.zeropp.planning.search import SearchResult
from dtk.zeropp.planning.traffic import most_traffic

__all__ = ["describe_plan", "describe_problem", "gib", "largest_parts", "plan_cells", "rival_cells"]

_GIB = 2**30
_MIB = 2**20


def gib(size_bytes: float) -> str:
    """Return a size in GiB with one decimal, below 1 GiB in whole MiB."""
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes / _MIB:.0f} MiB"


def describe_problem(problem: PlanProblem) -> str:
    """Return what is planned, in one line."""
    machine = problem.machine
    return (
        f"{problem.shape.name} on {machine.name} ({machine.num_chips} {machine.chip.name}, "
        f"{machine.chips_per_node} a node), {problem.global_batch} sequences of {problem.sequence_tokens} "
        f"tokens, {gib(problem.limit_bytes)} a rank"
    )


def describe_plan(evaluated: Evaluated) -> str:
    """Return a configuration of ZeroPP, in one line."""
    candidate, run = evaluated.candidate, evaluated.estimate.run
    texts = [
        f"P={candidate.pipeline_parallel}",
        f"V={candidate.chunks}",
        f"U={candidate.schedule.unit}",
        f"D={candidate.sharding.ranks}",
    ]
    if candidate.hybrid is not None:
        texts.append(f"{candidate.num_replicas} replicas ({candidate.hybrid})")
    texts += [f"b={candidate.micro_batch}", f"M={run.num_microbatches}", _again(evaluated)]
    texts.append("split backward" if candidate.splits_backward else "joined backward")
    resident = candidate.schedule.resident_chunks
    texts.append(f"{resident} chunk{'s' if resident > 1 else ''} gathered at once")
    if candidate.replicas_outermost:
        texts.append("replicas outside the pipeline")
    return ", ".join(texts)


def _again(evaluated: Evaluated) -> str:
    candidate = evaluated.candidate
    if candidate.recomputation == "none":
        return "no recomputation"
    return f"{candidate.recomputation} recomputation" + (
        " but of the last stage" if candidate.keep_last_chunk else ""
    )


def largest_parts(parts: Mapping[str, float], written: Callable[[float], str], count: int = 3) -> str:
    """Return the largest parts in words."""
    largest = sorted(parts.items(), key=lambda each: -each[1])[:count]
    return ", ".join(f"{name} {written(value)}" for name, value in largest)


def plan_cells(evaluated: Evaluated, best: Evaluated) -> list[str]:
    """Return a row of the table of plans."""
    candidate, estimate = evaluated.candidate, evaluated.estimate
    again = {"none": "-"}.get(candidate.recomputation, candidate.recomputation)
    return [
        str(candidate.pipeline_parallel),
        str(candidate.chunks),
        str(candidate.schedule.unit),
        str(candidate.sharding.ranks),
        str(candidate.num_replicas),
        str(candidate.micro_batch),
        str(estimate.run.num_microbatches),
        again + ("*" if candidate.keep_last_chunk else ""),
        str(candidate.schedule.resident_chunks),
        f"{evaluated.iteration_s:.4g} s",
        f"{evaluated.iteration_s / best.iteration_s - 1:.1%}",
        gib(estimate.peak_bytes),
        f"{estimate.bubble_ratio:.1%}",
    ]


def rival_cells(name: str, found: SearchResult, best: Evaluated) -> list[str]:
    """Return a row of the table of rivals, of a search that found a plan."""
    evaluated = found.best[0]
    estimate = evaluated.estimate
    return [
        name if found.is_complete else f"{name}\n(not proven)",
        f"{evaluated.iteration_s:.4g} s",
        f"{evaluated.iteration_s / best.iteration_s - 1:+.1%}" if evaluated is not best else "",
        f"{estimate.utilisation:.1%}",
        gib(estimate.peak_bytes),
        f"{estimate.bubble_ratio:.1%}",
        gib(most_traffic(estimate).total_bytes),
        _layout(evaluated),
    ]


def _layout(evaluated: Evaluated) -> str:
    """Return the sizes of a layout, short: `t2 P4 V2 D8 b1`, and what is computed again."""
    candidate = evaluated.candidate
    texts = [f"t{candidate.tensor_parallel}"] if candidate.tensor_parallel > 1 else []
    texts += [f"P{candidate.pipeline_parallel}", f"V{candidate.chunks}"]
    if candidate.schedule.name == "zeropp":
        texts.append(f"U{candidate.schedule.unit}")
    texts.append(f"D{candidate.sharding.ranks}")
    if candidate.sharding.stage and candidate.num_replicas > 1:
        texts.append(f"x{candidate.num_replicas}")
    texts += [f"zero{candidate.sharding.stage}", f"b{candidate.micro_batch}"]
    if candidate.recomputation != "none":
        texts.append(candidate.recomputation + ("*" if candidate.keep_last_chunk else ""))
    return " ".join(texts)
