"""Adapter to Triton's ahead-of-time compiler: the one file that touches interfaces Triton may move.

It uses `triton.compile(ASTSource(...), target=GPUTarget(...))`, which needs neither GPU nor driver. The
resources of the binary come from the `cuobjdump` that ships with Triton, because Triton itself learns
them only by loading the binary on a GPU. A process that imported triton under TRITON_INTERPRET cannot
compile.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import triton.backends
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as triton_compile

from dtk_kernels.triton_support import KernelVariant, interpreting

__all__ = ["Binary", "MemoryAccess", "compile_variant", "memory_access", "require_compiler"]


@dataclass(frozen=True)
class MemoryAccess:
    """How a kernel moves global memory, counted in its PTX.

    Attributes:
        async_copies: instructions that copy 16 bytes from global to shared memory asynchronously.
        copies_in_flight: batches of such copies that may still be on their way while the program computes.
        vector_loads: instructions that load 16 bytes of global memory.
    """

    async_copies: int
    copies_in_flight: int
    vector_loads: int


@dataclass(frozen=True)
class Binary:
    """What one compilation gave.

    Attributes:
        shared_bytes: shared memory a program takes, static and dynamic.
        registers: registers a thread; None if the disassembler is missing.
        spilled_bytes: local memory a thread, mostly spilled registers; None likewise.
        matrix_instructions: the matrix-multiply instructions of the PTX, each once.
        scaled_descriptors: what the block-scaled ones among them are told of their operands, each once.
        float_shortcuts: instructions that flush subnormals, divide approximately, or contract a product
            and a sum.
        memory: how it moves global memory.
    """

    shared_bytes: int
    registers: int | None
    spilled_bytes: int | None
    matrix_instructions: tuple[str, ...]
    scaled_descriptors: tuple[int, ...]
    float_shortcuts: int
    memory: MemoryAccess


def require_compiler() -> None:
    """Raise RuntimeError if this process imported triton under TRITON_INTERPRET."""
    if interpreting():
        raise RuntimeError(
            "kernels cannot be compiled in a process that imported triton under TRITON_INTERPRET; "
            "run python -m dtk_kernels.aot"
        )


def compile_variant(variant: KernelVariant, capability: int) -> Binary:
    """Compile one variant for a CUDA compute capability such as 90.

    Raises:
        Exception: whatever Triton or ptxas raise for a kernel that does not compile.
    """
    source = ASTSource(
        fn=variant.kernel,
        signature=variant.signature(),
        constexprs=dict(variant.constants),
        attrs={(i,): [["tt.divisibility", 16]] for i in variant.aligned_parameters()},
    )
    options = {
        "num_warps": variant.num_warps,
        "num_stages": variant.num_stages,
        "enable_fp_fusion": variant.fp_fusion,
    }
    compiled = triton_compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    registers, spilled_bytes = _resources(compiled.asm["cubin"])
    ptx = compiled.asm["ptx"]
    return Binary(
        shared_bytes=int(compiled.metadata.shared),
        registers=registers,
        spilled_bytes=spilled_bytes,
        matrix_instructions=matrix_instructions(ptx),
        scaled_descriptors=scaled_descriptors(ptx),
        float_shortcuts=len(re.findall(r"\.ftz\b|\bfma\.|\bdiv\.(?:full|approx)\b|\brcp\.", ptx)),
        memory=memory_access(ptx),
    )


def matrix_instructions(ptx: str) -> tuple[str, ...]:
    """Return the matrix-multiply instructions of a kernel's PTX, each once, with their kinds and types."""
    return tuple(sorted(set(re.findall(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)\.\S+", ptx))))


def scaled_descriptors(ptx: str) -> tuple[int, ...]:
    """Return the constant descriptors of block-scaled products: the fourth operand, moved there before."""
    operand = r"(?:\[[^\]]*\]|\S+),\s*"
    instruction = rf"\btcgen05\.mma\.\S*block_scale\S*\s+{operand}{operand}{operand}(%r\d+),"
    found: set[int] = set()
    for register in set(re.findall(instruction, ptx)):
        found |= {int(value) for value in re.findall(rf"\bmov\.b32\s+{register}, (\d+);", ptx)}
    return tuple(sorted(found))


def memory_access(ptx: str) -> MemoryAccess:
    """Count what a kernel's PTX says of its traffic."""
    waits = re.findall(r"\bcp\.async\.wait_group\s+(\d+)", ptx)
    return MemoryAccess(
        async_copies=len(re.findall(r"\bcp\.async\.cg\.shared", ptx)),
        copies_in_flight=max(map(int, waits), default=0),
        vector_loads=len(re.findall(r"\bld\.global\S*(?:\.v4\.b32|\.v2\.b64)", ptx)),
    )


def _resources(cubin: bytes) -> tuple[int | None, int | None]:
    """Registers and local bytes a thread, read by the disassembler that Triton brings."""
    tool = _cuobjdump()
    if tool is None:
        return None, None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", listing)
    return (int(found[1]), int(found[2]) + int(found[3])) if found else (None, None)


def _cuobjdump() -> str | None:
    tool = Path(triton.backends.__file__).parent / "nvidia" / "bin" / "cuobjdump"
    return str(tool) if tool.exists() else None
