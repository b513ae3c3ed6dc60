"""Other launch plans for attention than the one in use, as contenders.

A plan is the pipeline of a program (tokens a tile, buffers, warps) and into how many parts a row is split.
Each is first held against the plan in use; what does not run on this GPU is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dtk_kernels.attention.sparse_decode_attention.launch_plan import Pipeline, pipeline_for
from dtk_kernels.attention.sparse_decode_attention.triton_kernel import sparse_decode_attention
from dtk_kernels.gpu_bench import problems
from dtk_kernels.gpu_bench.bench import Bench
from dtk_kernels.gpu_bench.cases import Case

__all__ = ["Plan", "contenders", "plans", "time"]

_PIPELINES = (
    *((32, 2, 2), (32, 3, 2), (32, 2, 4), (32, 3, 4), (32, 4, 4)),
    *((64, 1, 4), (64, 2, 2), (64, 2, 4), (64, 3, 4), (64, 2, 8)),
    *((128, 1, 4), (128, 2, 4), (128, 2, 8)),
)
_SPLITS = (1, 2, 4, 8, 16, 32)
_TOLERANCE = 1e-3

Call = Callable[[], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Plan:
    """One way to launch.

    Attributes:
        pipeline: how a program walks its part.
        splits: parts of a row; None as the launch plan says.
    """

    pipeline: Pipeline
    splits: int | None = None

    @property
    def name(self) -> str:
        """As in `64 tokens, 2 buffers, 4 warps, 8 parts`."""
        pipeline = self.pipeline
        name = f"{pipeline.tokens} tokens, {pipeline.buffers} buffers, {pipeline.num_warps} warps"
        return name if self.splits is None else f"{name}, {self.splits} parts"


def plans(case: Case) -> list[Plan]:
    """Return the plan in use, then other pipelines, then other splits of the pipeline in use."""
    dtype = problems.DTYPES[case.dtype]
    in_use = pipeline_for(dtype, dtype, head_dim=case.head_dim, group_size=case.group_size)
    pipelines = [in_use, *(Pipeline(*each) for each in _PIPELINES)]
    splits = [each for each in _SPLITS if each <= case.num_blocks]
    return list(dict.fromkeys([*map(Plan, pipelines), *(Plan(in_use, each) for each in splits)]))


def time(bench: Bench, case: Case) -> dict[str, Any]:
    """Time all plans of a case, in turns.

    Raises:
        OutOfTimeError: the budget ends before there are three rounds.
    """
    return bench.measure(case, contenders(bench, case))


def contenders(bench: Bench, case: Case) -> dict[str, Sequence[Call]]:
    """Return the calls of every plan that runs and is right, the plan in use first, as "triton"."""
    copies = problems.copies_for(case.moved_bytes, bench.cache_bytes)
    data = problems.attention(case, copies, bench.device)
    wanted = data.ours(0)
    found: dict[str, Sequence[Call]] = {"triton": [partial(data.ours, copy) for copy in range(copies)]}
    for plan in plans(case)[1:]:
        calls = [_call(data, copy, plan) for copy in range(copies)]
        try:
            right = all(map(_close, calls[0](), wanted))
        except Exception as error:  # noqa: BLE001 - too much shared memory, for example
            bench.note(f"{plan.name}: does not run here: {type(error).__name__}: {error}".splitlines()[0])
            continue
        if right:
            found[plan.name] = calls
        else:
            bench.note(f"{plan.name}: wrong")
    return found


def _call(data: problems.Attention, copy: int, plan: Plan) -> Call:
    table = data.tables[copy]
    return partial(
        sparse_decode_attention,
        data.queries[copy],
        data.keys,
        data.values,
        table,
        data.lengths,
        columns_per_split=None if plan.splits is None else -(-table.shape[2] // plan.splits),
        pipeline=plan.pipeline,
    )


def _close(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.allclose(got, wanted, rtol=_TOLERANCE, atol=_TOLERANCE)
