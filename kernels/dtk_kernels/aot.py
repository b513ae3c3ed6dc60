"""Compile every Triton kernel ahead of time for named GPU targets; no GPU or driver is needed.

It shows that types and lowering are right for dtypes that Triton's interpreter cannot run (bfloat16), what
registers, spills and shared memory each kernel takes, and how it moves memory: by asynchronous copies, how
far ahead, in how wide loads. It says nothing about values or speed.

    python -m dtk_kernels.aot --targets sm80,sm90,sm100 [--only TEXT] [--json]

Exit codes: 0 everything compiled, 1 something did not, 2 bad usage.
"""

import argparse
import importlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtk_kernels.triton_support import KernelVariant

__all__ = ["MODULES", "TARGETS", "Result", "compile_all", "main", "variants"]

TARGETS = ("sm80", "sm90", "sm100")
"""Ampere, Hopper, Blackwell: the defaults."""

MODULES = (
    "dtk_kernels.attention.block_digest.triton_kernel",
    "dtk_kernels.attention.block_score.triton_kernel",
    "dtk_kernels.attention.merge_partials.triton_kernel",
    "dtk_kernels.attention.quantized_decode_attention.triton_kernel",
    "dtk_kernels.attention.select_blocks.triton_kernel",
    "dtk_kernels.attention.sparse_decode_attention.triton_kernel",
    "dtk_kernels.gemm.packed_linear.triton_kernel",
    "dtk_kernels.gemm.scaled_matmul.triton_kernel",
    "dtk_kernels.kv.copy_blocks.triton_kernel",
    "dtk_kernels.kv.gather_blocks.triton_kernel",
    "dtk_kernels.kv.scatter_blocks.triton_kernel",
    "dtk_kernels.quant.dequantize.triton_kernel",
    "dtk_kernels.quant.fake_quantize.triton_kernel",
    "dtk_kernels.quant.hadamard.triton_kernel",
    "dtk_kernels.quant.pack.triton_kernel",
    "dtk_kernels.quant.quantize.triton_kernel",
    "dtk_kernels.quant.unpack.triton_kernel",
)
"""Where the kernels are; each module has `aot_variants()`."""


@dataclass(frozen=True)
class Result:
    """How one variant compiled for one target.

    Attributes:
        variant: operation and specialisation, e.g. `merge_partials[d128]`.
        kernel: name of the Triton function.
        target: e.g. `sm90`.
        ok: whether a binary came out.
        seconds: wall time of the compilation, or of reading Triton's cache.
        shared_bytes: shared memory a program; None if it did not compile.
        registers: registers a thread; None if it did not compile or Triton brings no disassembler.
        spilled_bytes: local memory a thread; None likewise.
        tensor_cores: whether there are matrix-multiply instructions; None if it did not compile, as below.
        matrix_instructions: those instructions, each once.
        scaled_descriptors: what the block-scaled ones among them are told of their operands.
        float_shortcuts: instructions that flush subnormals, divide approximately, or contract a product
            and a sum; None likewise.
        async_copies: instructions that copy 16 bytes to shared memory asynchronously.
        copies_in_flight: batches of such copies that may be on their way while the program computes.
        vector_loads: instructions that load 16 bytes of global memory.
        error: the compiler's message.
    """

    variant: str
    kernel: str
    target: str
    ok: bool
    seconds: float
    shared_bytes: int | None = None
    registers: int | None = None
    spilled_bytes: int | None = None
    tensor_cores: bool | None = None
    matrix_instructions: tuple[str, ...] = ()
    scaled_descriptors: tuple[int, ...] = ()
    float_shortcuts: int | None = None
    async_copies: int | None = None
    copies_in_flight: int | None = None
    vector_loads: int | None = None
    error: str | None = None


def variants(only: str = "") -> list["KernelVariant"]:
    """All registered variants whose name contains `only`.

    To those that the modules list come two of each module's first one: Triton specialises kernels on integer
    arguments that are 1 (one row, one head) or need 64 bits, and such a kernel must compile too.
    """
    found = []
    for module in MODULES:
        listed = importlib.import_module(module).aot_variants()
        first = listed[0]
        has_strides = any(name.startswith("stride_") for name in first.signature())
        found += [*listed, first.all_ones(), *([first.long_strides()] if has_strides else [])]
    return [variant for variant in found if only in variant.name]


def compile_all(targets: Sequence[str] = TARGETS, only: str = "") -> Iterator[Result]:
    """Compile the registered variants one by one and yield what came of each.

    Raises:
        ValueError: a target is not of the form `sm90`.
        RuntimeError: this process imported triton under TRITON_INTERPRET.
    """
    capabilities = [_capability(target) for target in targets]
    from dtk_kernels.triton_compiler import require_compiler

    require_compiler()
    for target, capability in zip(targets, capabilities, strict=True):
        for variant in variants(only):
            if variant.min_capability <= capability:
                yield _compile(variant, target, capability)


def _capability(target: str) -> int:
    if not re.fullmatch(r"sm\d{2,3}", target):
        raise ValueError(f"target must look like sm90, got {target!r}")
    return int(target.removeprefix("sm"))


def _compile(variant: "KernelVariant", target: str, capability: int) -> Result:
    from dtk_kernels.triton_compiler import compile_variant

    name, kernel = variant.name, str(variant.kernel.__name__)
    start = time.perf_counter()
    try:
        binary = compile_variant(variant, capability)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the result
        seconds = time.perf_counter() - start
        return Result(
            name, kernel, target, ok=False, seconds=seconds, error=f"{type(error).__name__}: {error}"
        )
    return Result(
        name,
        kernel,
        target,
        ok=True,
        seconds=time.perf_counter() - start,
        shared_bytes=binary.shared_bytes,
        registers=binary.registers,
        spilled_bytes=binary.spilled_bytes,
        tensor_cores=bool(binary.matrix_instructions),
        matrix_instructions=binary.matrix_instructions,
        scaled_descriptors=binary.scaled_descriptors,
        float_shortcuts=binary.float_shortcuts,
        **asdict(binary.memory),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line in the module docstring and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dtk_kernels.aot", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--targets", default=",".join(TARGETS), help="comma-separated, default %(default)s")
    parser.add_argument("--only", default="", metavar="TEXT", help="variants whose name contains TEXT")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    options = parser.parse_args(arguments)
    targets = options.targets.split(",")
    try:
        for target in targets:
            _capability(target)
    except ValueError as error:
        parser.error(str(error))
    # The interpreter replaces the compiler if this is set when triton is imported, which is still to come.
    os.environ.pop("TRITON_INTERPRET", None)
    results = []
    for result in compile_all(targets, options.only):
        results.append(result)
        (sys.stderr if options.json else sys.stdout).write(_line(result) + "\n")
    failed = sum(not result.ok for result in results)
    if options.json:
        report = {
            "schema": "dtk_kernels.aot/1",
            "basis": "measured",
            "results": [asdict(result) for result in results],
        }
        sys.stdout.write(json.dumps(report) + "\n")
    sys.stderr.write(f"{len(results) - failed} of {len(results)} compiled\n")
    return 1 if failed or not results else 0


def _line(result: Result) -> str:
    if not result.ok:
        return f"{result.target:6} {result.variant:45} FAILED {result.error}"
    unknown = "?"
    return (
        f"{result.target:6} {result.variant:45} {result.seconds:5.1f} s"
        f"  {result.registers if result.registers is not None else unknown:>3} registers"
        f"  {result.spilled_bytes if result.spilled_bytes is not None else unknown:>4} B spilled"
        f"  {result.shared_bytes:>6} B shared"
        + (f"  {result.async_copies} async copies" if result.async_copies else "")
        + ("  tensor cores" if result.tensor_cores else "")
    )


if __name__ == "__main__":
    sys.exit(main())
