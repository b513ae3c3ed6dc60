"""Simulates a schedule: with the native engine on whole arrays, or action by action in plain Python.

Rules. Each rank runs its compute actions in listed order, one at a time, each when its inputs have arrived
and its parameters are gathered. Outputs for another rank travel on a stream of that pair of ranks, in the
order in which they were made. UNSHARD, RESHARD and REDUCE_GRAD happen when the compute actions listed before
them have ended, gathers and reductions each on a stream of the rank; compute waits for the UNSHARD listed
before it, and for no reduction. What is listed as sends and receives takes no time of its own. The optimizer
steps after all compute and all reductions, of all ranks unless told otherwise. Memory is freed before it is
taken where both happen at once.
"""

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.arrays import ArraySimulation
from dtk.pipeline.simulate.faults import check_sizes
from dtk.pipeline.simulate.oracle import Oracle
from dtk.pipeline.simulate.result import MemoryStep, Simulation, Task
from dtk.simulation.engine import Engine, choose_engine

__all__ = ["simulate", "simulate_memory", "simulate_tasks"]


def simulate(
    schedule: Schedule,
    costs: StageCosts,
    *,
    engine: Engine | None = None,
    synchronise_optimizer: bool = True,
) -> Simulation:
    """Return how long a schedule takes, why ranks stand still, and what they hold and send.

    Args:
        schedule: Compute actions alone, or with what lowering adds.
        costs: Times and sizes.
        engine: `native`, `python`, or the best that is live. Both say exactly the same.
        synchronise_optimizer: All ranks wait for all before the optimizer step, as for the norm of all
            gradients. Otherwise each waits for its own compute and reductions.

    Raises:
        InputError: If the schedule cannot run: an action is on the wrong rank, or twice, or waits for ever.
        NativeModuleRequiredError: The native engine is missing, and asked for or `DTK_REQUIRE_NATIVE` is 1.
    """
    return _run(schedule, costs, engine, synchronise_optimizer).simulation()


def simulate_tasks(
    schedule: Schedule,
    costs: StageCosts,
    *,
    engine: Engine | None = None,
    synchronise_optimizer: bool = True,
) -> list[Task]:
    """Return what took time, for timelines: by rank, then stream, each in its order.

    Compute actions are all there; transfers, gathers, reductions and optimizer steps where they take time.
    Arguments and errors are those of `simulate`.
    """
    return _run(schedule, costs, engine, synchronise_optimizer).tasks()


def simulate_memory(
    schedule: Schedule, costs: StageCosts, *, engine: Engine | None = None
) -> list[MemoryStep]:
    """Return what ranks hold over time, where it changes: by time, then rank, then kind.

    Arguments and errors are those of `simulate`.
    """
    return _run(schedule, costs, engine, synchronise_optimizer=True).memory_steps()


def _run(
    schedule: Schedule, costs: StageCosts, engine: Engine | None, synchronise_optimizer: bool
) -> ArraySimulation | Oracle:
    check_sizes(schedule, costs)
    if choose_engine(engine) == "native":
        return ArraySimulation(schedule, costs, synchronise_optimizer=synchronise_optimizer)
    return Oracle(schedule, costs, synchronise_optimizer=synchronise_optimizer)
