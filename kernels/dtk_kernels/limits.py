"""The machine's limits, measured with the threads of a `Workers`: memory reads and multiply-adds.

What attention over K/V cannot beat: how fast memory can be read, and how fast registers can multiply and add
in the widest instruction set that the CPU has (whatever the kernels use). Each call does the work once, so
that a benchmark can time it in turn with others. There is no reference: a limit that torch sets is measured
by calling torch.
"""

from typing import TYPE_CHECKING, cast

import torch

from dtk_kernels._native_calls import view
from dtk_kernels._native_module import native_module, why_no_native_module
from dtk_kernels.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dtk_kernels._native import WorkerPool
    from dtk_kernels._worker_threads import Handle

__all__ = ["instruction_set", "multiply_add", "read"]

_READ_STEP = 1024  # floats, as in csrc/kernels/limits_table.hpp
_READ_TASK_BYTES = 4 * 2**20  # small enough that a thread which was held up does not hold up the others
_MULTIPLY_ADD_TASKS_PER_THREAD = 16
_CHAIN_STEPS = 64  # after which x * 0.5 + 0.5 is 1 to the last bit, whatever it began with


def instruction_set() -> str:
    """Return the instruction set that limits are measured in: `generic`, `avx2` or `avx512`.

    Raises:
        RuntimeError: The compiled module is missing.
    """
    return str(_module().limits_instruction_set())


def read(workers: Workers, buffer: torch.Tensor) -> float:
    """Read the whole buffer once, all threads together, and return the sum of its values.

    Args:
        workers: The threads.
        buffer: fp32 [n] on the CPU, contiguous; n a multiple of 1024, and n * 4 bytes well above the
            last-level cache, or the caches are measured.

    Raises:
        ValueError: The buffer has another shape, dtype or device.
        RuntimeError: The compiled module is missing, or the workers are closed.
    """
    module = _module()
    if (
        buffer.dtype != torch.float32
        or buffer.dim() != 1
        or not buffer.is_contiguous()
        or buffer.device.type != "cpu"
    ):
        raise ValueError(
            f"buffer must be a contiguous fp32 vector on the CPU, got {buffer.dtype} {tuple(buffer.shape)}"
        )
    if buffer.numel() == 0 or buffer.numel() % _READ_STEP:
        raise ValueError(f"buffer must hold a multiple of {_READ_STEP} values, got {buffer.numel()}")
    num_tasks = max(workers.num_threads, buffer.numel() * 4 // _READ_TASK_BYTES)
    sums = torch.zeros(num_tasks, dtype=torch.float64)
    _start(workers, lambda threads: module.submit_read(threads, view(buffer), view(sums)), buffer, sums)
    return float(sums.sum())


def multiply_add(workers: Workers, count: int) -> int:
    """Run about `count` fp32 multiply-adds on registers, all threads together; return how many they were.

    Raises:
        ValueError: count is below 1.
        RuntimeError: The compiled module is missing, the workers are closed, or the result is wrong.
    """
    module = _module()
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    per_step = int(module.multiply_adds_per_step())
    num_tasks = workers.num_threads * _MULTIPLY_ADD_TASKS_PER_THREAD
    steps = max(_CHAIN_STEPS, count // (per_step * num_tasks))
    sums = torch.zeros(num_tasks, dtype=torch.float64)
    _start(workers, lambda threads: module.submit_multiply_adds(threads, steps, view(sums)), sums)
    if not bool((sums == per_step).all()):
        raise RuntimeError(f"the multiply-add loop gave {sums.tolist()}, not {per_step} each")
    return steps * num_tasks * per_step


def _start(workers: Workers, submit: "Callable[[WorkerPool], Handle]", *held: torch.Tensor) -> None:
    threads = cast("WorkerPool", workers._threads)
    workers._start(lambda: submit(threads), None, *held).wait(take_part=False)


def _module() -> "ModuleType":
    module = native_module()
    if module is None:
        raise RuntimeError(f"limits are measured by compiled code: {why_no_native_module()}")
    return module
