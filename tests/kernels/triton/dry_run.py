"""Runs every operation up to the launch, on CPU tensors: Triton compiles what it would launch on an sm90 GPU.

    python -m tests.kernels.triton.dry_run

prints, for each kernel, how it moves memory in each of the variants that Triton's own rules of specialisation
made of the calls. Not under TRITON_INTERPRET.
"""

import importlib
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from dtk_kernels import aot
from dtk_kernels.triton_compiler import memory_access

MODULES = [importlib.import_module(name) for name in (*aot.MODULES, "dtk_kernels.kv.triton_kernel")]


class NoGpu:
    """As much of a driver as Triton asks before it launches."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def variants(head_dim: int) -> dict[str, list[dict[str, Any]]]:
    """Make the calls of a server: batches and contexts of many sizes, one model."""
    compiled: dict[str, dict[int, Any]] = defaultdict(dict)

    def compile_only(kernel: Any, grid: tuple[int, ...], *arguments: object, **options: Any) -> None:
        del options["device"]
        if 0 not in grid:
            binary = kernel.warmup(*arguments, grid=grid, **{"enable_fp_fusion": True, **options})
            compiled[kernel.__name__.strip("_")][id(binary)] = binary

    functions = {}
    for module in MODULES:
        if hasattr(module, "launch"):
            module.launch = compile_only  # type: ignore[attr-defined]
        functions |= {name: getattr(module, name) for name in module.__all__ if name != "aot_variants"}
    pool = torch.zeros(200, 8, 32, head_dim, dtype=torch.bfloat16)
    digest = torch.zeros(200, 8, head_dim, dtype=torch.bfloat16)
    codes = torch.zeros(200, 8, 32, head_dim // 2, dtype=torch.uint8)
    scales = torch.zeros(200, 8, 32, 1)
    for batch, num_blocks in ((1, 2), (1, 16), (2, 17), (3, 64), (16, 100), (40, 33)):
        query = torch.zeros(batch, 32, head_dim, dtype=torch.bfloat16)
        table = torch.zeros(batch, 1, num_blocks, dtype=torch.int32)
        functions["sparse_decode_attention"](query, pool, pool, table, table, columns_per_split=2)
        functions["quantized_decode_attention"](
            query, codes, codes, scales, scales, table, table, format="e2m1", columns_per_split=2
        )
        functions["block_score"](query, digest, digest, table[:, 0])
        functions["select_blocks"](torch.zeros(batch, 1, 1500 + num_blocks), 10)
        functions["block_digest"](pool[:num_blocks], table[0, 0])
        functions["gather_blocks"](pool, table[0, 0])
        functions["scatter_blocks_"](pool, table[0, 0], torch.zeros(num_blocks, 8, 32, head_dim).bfloat16())
    return {
        name: [asdict(memory_access(binary.asm["ptx"])) for binary in binaries.values()]
        for name, binaries in compiled.items()
    }


if __name__ == "__main__":
    driver.set_active(NoGpu())
    sys.stdout.write(json.dumps({str(head_dim): variants(head_dim) for head_dim in (128, 80)}))
