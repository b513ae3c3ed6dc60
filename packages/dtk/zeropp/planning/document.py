"""A plan as plain values for JSON: every row with what its figures rest on."""

from dataclasses import asdict
from typing import Any, Final

from dtk.zeropp.planning.evaluation import Evaluated
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.planner import Plan
from dtk.zeropp.planning.problem import ZEROPP, PlanProblem
from dtk.zeropp.planning.reasons import memory_parts, time_parts
from dtk.zeropp.planning.search import SearchResult
from dtk.zeropp.planning.shortfall import Shortfall
from dtk.zeropp.planning.traffic import most_traffic, unit_condition
from dtk.zeropp.planning.uncounted import explain_uncounted
from dtk.zeropp.planning.unit_choice import UnitChoice

__all__ = ["plan_data", "row_data"]

_BASIS: Final = "simulated"


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return all that is known of a plan."""
    best = plan.best
    return {
        "problem": _problem_data(plan.problem),
        "best": None
        if best is None
        else row_data(ZEROPP, best) | {"proven": plan.search.is_complete} | _reasons_data(best),
        "runners_up": [
            row_data(ZEROPP, each) | {"proven": plan.search.is_complete, "loses": _ratio(each, best)}
            for each in plan.search.best[1:]
        ],
        "rivals": [_rival_data(name, found, best) for name, found in plan.rivals.items()],
        "unit": None if plan.unit is None or best is None else _unit_data(plan.problem, plan.unit, best),
        "nearest_that_does_not_fit": None
        if plan.shortfall is None
        else _shortfall_data(plan.shortfall, best),
        "search": _search_data(plan.search),
        "left_out": plan.left_out,
        "fastest_method": plan.fastest_method,
    }


def row_data(method: str, evaluated: Evaluated) -> dict[str, Any]:
    """Return one plan: its options and what they give."""
    candidate, estimate = evaluated.candidate, evaluated.estimate
    schedule, sharding = candidate.schedule, candidate.sharding
    return {
        "method": method,
        "summary": METHODS[method].summary,
        "basis": _BASIS,
        "schedule": schedule.name,
        "tensor_parallel": candidate.tensor_parallel,
        "pipeline_parallel": candidate.pipeline_parallel,
        "chunks": candidate.chunks,
        "data_parallel": candidate.data_parallel,
        "unit": schedule.unit if schedule.name == "zeropp" else None,
        "sharding_stage": sharding.stage,
        "shard_ranks": sharding.ranks,
        "replicas": candidate.num_replicas,
        "hybrid": candidate.hybrid,
        "micro_batch": candidate.micro_batch,
        "micro_batches": estimate.run.num_microbatches,
        "recomputation": candidate.recomputation,
        "keep_last_chunk": candidate.keep_last_chunk,
        "split": candidate.splits_backward,
        "resident_chunks": schedule.resident_chunks if sharding.stage == 3 else None,
        "replicas_outermost": candidate.replicas_outermost,
        "iteration_s": evaluated.iteration_s,
        "tokens_per_s": estimate.tokens_per_s,
        "model_flop_per_s_per_chip": estimate.model_flop_per_s,
        "utilisation": estimate.utilisation,
        "bubble_ratio": estimate.bubble_ratio,
        "peak_bytes": estimate.peak_bytes,
        "limit_bytes": evaluated.limit_bytes,
        "traffic_bytes": asdict(most_traffic(estimate)),
        "warnings": list(estimate.warnings),
    }


def _ratio(evaluated: Evaluated, best: Evaluated | None) -> float | None:
    return None if best is None else evaluated.iteration_s / best.iteration_s - 1


def _reasons_data(best: Evaluated) -> dict[str, Any]:
    times, memory = time_parts(best.estimate), memory_parts(best.estimate)
    return {
        "time_s_by_part": dict(times.seconds),
        "time_of_rank": times.rank,
        "memory_bytes_by_part": dict(memory.size_bytes),
        "memory_of_rank": memory.rank,
    }


def _rival_data(name: str, found: SearchResult, best: Evaluated | None) -> dict[str, Any]:
    if not found.best:
        return {
            "method": name,
            "summary": METHODS[name].summary,
            "basis": _BASIS,
            # What was not searched to the end may fit yet.
            "fits": False if found.is_complete else None,
            "proven": found.is_complete,
            "search": _search_data(found),
        }
    rival = found.best[0]
    return row_data(name, rival) | {
        "fits": True,
        "proven": found.is_complete,
        "speed_up_of_zeropp": None if best is None else rival.iteration_s / best.iteration_s,
        "search": _search_data(found),
    }


def _unit_data(problem: PlanProblem, choice: UnitChoice, best: Evaluated) -> dict[str, Any]:
    units, weights = unit_condition(
        problem.shape.hidden_size, problem.sequence_tokens, choice.chosen, best.candidate.micro_batch
    )
    return {
        "chosen": choice.chosen,
        "condition": "2 s U b > 9 h",
        "condition_left": units,
        "condition_right": weights,
        "meets_condition": units > weights,
        "least_by_condition": choice.least_by_condition,
        "rows": [
            {
                "unit": row.unit,
                "basis": _BASIS,
                "iteration_s": row.evaluated.iteration_s,
                "peak_bytes": row.evaluated.estimate.peak_bytes,
                "fits": row.evaluated.fits,
                "meets_condition": row.meets_condition,
            }
            for row in choice.rows
        ],
    }


def _shortfall_data(shortfall: Shortfall, best: Evaluated | None) -> dict[str, Any]:
    gain = _ratio(shortfall.evaluated, best)
    return row_data(ZEROPP, shortfall.evaluated) | {
        "constraint": "memory",
        "excess_bytes": shortfall.excess_bytes,
        "memory_bytes_by_part": dict(shortfall.memory.size_bytes),
        "memory_of_rank": shortfall.memory.rank,
        "would_gain": None if gain is None else -gain,
    }


def _search_data(found: SearchResult) -> dict[str, Any]:
    return {
        "configurations": found.num_candidates,
        "simulated": found.num_simulated,
        "too_large": found.num_too_large,
        "proven": found.is_complete,
        "uncounted": None if found.uncounted is None else explain_uncounted(found.uncounted),
        "seconds": found.seconds,
    }


def _problem_data(problem: PlanProblem) -> dict[str, Any]:
    machine = problem.machine
    return {
        "model": problem.shape.name,
        "cluster": machine.name,
        "chip": machine.chip.name,
        "chips": machine.num_chips,
        "chips_per_node": machine.chips_per_node,
        "network_bytes_per_s_per_node": machine.network_bytes_per_s,
        "global_batch": problem.global_batch,
        "sequence_tokens": problem.sequence_tokens,
        "recipe": problem.recipe,
        "flash_attention": problem.flash_attention,
        "stack": problem.stack.name,
        "profiles": sorted({profile.source for profile in problem.profiles}),
        "limit_bytes": problem.limit_bytes,
        "fitted_constants": [*machine.constants.fitted, *problem.stack.fitted],
        "borrowed_constants": [*machine.constants.borrowed, *problem.stack.borrowed],
    }
