from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def start_times(
    durations: NDArray[np.int64],
    resources: NDArray[np.int32],
    positions: NDArray[np.int64],
    predecessor_offsets: NDArray[np.int64],
    predecessors: NDArray[np.int32],
    first_ready: NDArray[np.uint8],
    /,
) -> NDArray[np.int64]: ...

class SchedulingProblem:
    def __init__(
        self,
        *,
        rank_of_stage: Sequence[int],
        num_microbatches: int,
        forward: Sequence[int],
        input_grad: Sequence[int],
        weight_grad: Sequence[int],
        activation_transfer: Sequence[int],
        gradient_transfer: Sequence[int],
        activation_bytes: Sequence[int],
        weight_grad_bytes: Sequence[int],
        memory_limit: Sequence[int],
    ) -> None: ...

def evaluate_order(problem: SchedulingProblem, order: Sequence[Sequence[int]]) -> int | None: ...
def greedy_order(
    problem: SchedulingProblem,
    *,
    forward_first: int = 0,
    deepest_forward: bool = True,
    weight_grad_overrun: int = 1000,
    memory_share: int = 1000,
) -> list[list[int]]: ...
def search_order(
    problem: SchedulingProblem,
    starts: Sequence[Sequence[Sequence[int]]],
    *,
    lower_bound: int,
    max_evaluations: int,
    seed: int = 0,
) -> tuple[list[list[int]], int, int, bool]: ...
