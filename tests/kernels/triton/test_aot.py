"""Ahead-of-time compilation of every kernel for every target, in a process of its own."""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import dtk_kernels
from dtk_kernels import aot

PACKAGE = Path(str(dtk_kernels.__file__)).parent
KERNEL_FILES = sorted(PACKAGE.rglob("triton_kernel.py"))

# Compiling all variants once takes minutes, and many more where the machine has other work.
pytestmark = pytest.mark.timeout(2400)

# What a program may use, from the CUDA programming guide (maximum shared memory a thread block).
SHARED_BYTES = {"sm80": 163 * 1024, "sm90": 227 * 1024, "sm100": 227 * 1024}
REGISTERS = 65536  # of a multiprocessor
# The longest rows of select_blocks fill the registers of a whole multiprocessor, and 256 channels in eight
# parts those of a thread; nothing else may spill (two registers around the call that divides subnormal
# numbers are no matter).
SPILLED_BYTES = {
    "select_blocks[n32768,forced]": 64,
    "quantized_decode_attention[bf16,e2m1,bf16,e8,d256,s64,g16]": 64,
    "quantized_decode_attention[bf16,e4m3,e8m0,e8,d256,s64,g1]": 64,
    "quantize[bf16,e4m3,tensor,fp32]": 8,
}


def run_aot(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with warnings as errors, in an environment that would switch the compiler off."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_DEFAULT_FP_FUSION"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "dtk_kernels.aot", *arguments],
        env={**environment, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    """Compile everything once."""
    done = run_aot("--json", "--targets", ",".join(aot.TARGETS))
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == 0, [result for result in report["results"] if not result["ok"]]
    compiled: list[dict[str, Any]] = report["results"]
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("target", aot.TARGETS)
def test_every_variant_compiles(results: list[dict[str, Any]], target: str) -> None:
    compiled = {result["variant"] for result in results if result["target"] == target and result["ok"]}
    capability = int(target.removeprefix("sm"))
    assert compiled == {v.name for v in aot.variants() if v.min_capability <= capability}


@pytest.mark.slow
def test_every_kernel_in_the_sources_is_compiled(results: list[dict[str, Any]]) -> None:
    kernels = set()
    for file in KERNEL_FILES:
        functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
        kernels |= {f.name for f in functions if f.decorator_list and f.name.endswith("_kernel")}
    assert len(kernels) >= 6
    assert kernels == {result["kernel"] for result in results}


@pytest.mark.slow
def test_programs_fit_the_hardware(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert result["shared_bytes"] <= SHARED_BYTES[result["target"]], result
        assert 0 < result["registers"] <= 255, result
        assert result["spilled_bytes"] <= SPILLED_BYTES.get(result["variant"], 0), result


def main_variants(
    results: list[dict[str, Any]], *operations: str, targets: Sequence[str] = aot.TARGETS
) -> list[dict[str, Any]]:
    """Return the results of the variants that operations list, for every target."""
    chosen = [r for r in results if r["variant"].split("[")[0] in operations and "+" not in r["variant"]]
    assert {r["target"] for r in chosen} == set(aot.TARGETS)
    return [result for result in chosen if result["target"] in targets]


@pytest.mark.slow
def test_attention_uses_tensor_cores_and_loads_ahead(results: list[dict[str, Any]]) -> None:
    for result in main_variants(results, "sparse_decode_attention"):
        assert result["tensor_cores"], result
        assert result["async_copies"] > 0, result
        # K and V of the next tile may still be on their way while this one is worked on.
        assert result["copies_in_flight"] >= 2, result


@pytest.mark.slow
def test_attention_over_codes_uses_tensor_cores_and_loads_ahead(results: list[dict[str, Any]]) -> None:
    in_fp32 = ",e2m1,fp32,e8,d128,", ",e4m3,fp32,e12,d96,"  # scales of too few channels
    for result in main_variants(results, "quantized_decode_attention"):
        products = {instruction.split(".row.col.")[1] for instruction in result["matrix_instructions"]}
        if any(each in result["variant"] for each in in_fp32):
            assert products == {"f32.tf32.tf32.f32"}, result
            continue
        assert products == {"f32.f16.f16.f32"}, result
        assert result["copies_in_flight"] >= 2, result
        if ",d128," in result["variant"]:
            # Two programs a multiprocessor at least: one computes while the other one waits.
            assert 2 * (result["shared_bytes"] + 1024) <= SHARED_BYTES[result["target"]] + 1024, result
            assert 2 * 128 * (-(-result["registers"] // 8) * 8) <= REGISTERS, result


# The instruction that each way to multiply is for, at each target that has it.
INSTRUCTIONS = {
    ("fp16", "sm80"): r"mma\.sync\..*\.f32\.f16\.f16\.f32",
    ("fp16", "sm90"): r"wgmma\.mma_async\..*\.f32\.f16\.f16",
    ("fp16", "sm100"): r"tcgen05\.mma\..*kind::f16",
    ("fp8", "sm90"): r"wgmma\.mma_async\..*\.f32\.e[45]m[23]\.e4m3",
    ("fp8", "sm100"): r"tcgen05\.mma\..*kind::f8f6f4",
    ("scaled,e2m1,e2m1,e8m0", "sm100"): r"tcgen05\.mma\..*kind::mxf4\.block_scale\.block32",
    ("scaled,e2m1,e2m1,e4m3", "sm100"): r"tcgen05\.mma\..*kind::mxf4nvf4\.block_scale\.block16",
    ("scaled,e4m3,e2m1,e8m0", "sm100"): r"tcgen05\.mma\..*kind::mxf8f6f4\.block_scale\.block32",
    ("scaled,e5m2,e4m3,e8m0", "sm100"): r"tcgen05\.mma\..*kind::mxf8f6f4\.block_scale\.block32",
}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "target"), INSTRUCTIONS)
def test_scaled_products_use_the_instructions_made_for_them(
    results: list[dict[str, Any]], method: str, target: str
) -> None:
    """Triton emulates in 16 bits what does not fit an instruction: without a word, several times slower."""
    chosen = [
        result
        for result in results
        if result["target"] == target and result["variant"].startswith(f"scaled_matmul[{method},")
    ]
    assert chosen
    for result in chosen:
        assert len(result["matrix_instructions"]) == 1, result
        assert re.fullmatch(INSTRUCTIONS[method, target], result["matrix_instructions"][0]), result


@pytest.mark.slow
def test_e4m3_scales_are_not_taken_for_e8m0(results: list[dict[str, Any]]) -> None:
    """Both are bytes; which they are is bit 23 of the instruction's descriptor: set for E8M0."""
    for result in main_variants(results, "scaled_matmul", targets=["sm100"]):
        if result["variant"].startswith("scaled_matmul[scaled,"):
            in_e8m0 = {bool(each >> 23 & 1) for each in result["scaled_descriptors"]}
            assert in_e8m0 == {",e8m0," in result["variant"]}, result


@pytest.mark.slow
def test_several_attention_programs_share_a_multiprocessor(results: list[dict[str, Any]]) -> None:
    """The launch plan counts on it: one program alone waits for memory, then computes."""
    for result in main_variants(results, "sparse_decode_attention"):
        if ",d128,s32," in result["variant"]:
            in_16_bits = re.search(r"\[(fp16|bf16),\1,", result["variant"])
            wanted = 3 if in_16_bits and result["target"] != "sm80" else 2
            # The system takes 1 KiB a program, and a thread's registers come in units of 8.
            assert wanted * (result["shared_bytes"] + 1024) <= SHARED_BYTES[result["target"]] + 1024, result
            assert wanted * 128 * (-(-result["registers"] // 8) * 8) <= REGISTERS, result


@pytest.mark.slow
def test_kernels_bound_by_memory_load_16_bytes_at_once(results: list[dict[str, Any]]) -> None:
    moves = "gather_blocks", "scatter_blocks_", "copy_blocks_"
    quantisers = "fake_quantize", "dequantize", "pack", "unpack", "hadamard"
    for result in main_variants(
        results, "block_digest", "block_score", "merge_partials", *moves, *quantisers
    ):
        assert result["vector_loads"] > 0, result


@pytest.mark.slow
def test_quantisers_round_as_ieee_754_says(results: list[dict[str, Any]]) -> None:
    """Their bits are promised: no flushed subnormals, no approximate division, no fused product and sum."""
    for result in main_variants(results, "quantize", "fake_quantize", "dequantize", "hadamard"):
        assert result["float_shortcuts"] == 0, result
    others = main_variants(results, "sparse_decode_attention")
    assert all(result["float_shortcuts"] > 0 for result in others)  # that is, they would be seen


def test_every_operation_is_registered() -> None:
    files = {file for file in KERNEL_FILES if file.parent.name != "kv"}  # kv/triton_kernel.py is shared
    modules = {f"dtk_kernels.{'.'.join(file.relative_to(PACKAGE).with_suffix('').parts)}" for file in files}
    assert modules == set(aot.MODULES)


def test_every_floating_operation_has_a_variant_for_each_dtype() -> None:
    names = [variant.name for variant in aot.variants()]
    attention = "sparse_decode_attention", "quantized_decode_attention"
    quantisers = "quantize", "fake_quantize", "hadamard"
    for operation in ("block_digest", "block_score", *attention, *quantisers):
        for dtype in ("fp32", "fp16", "bf16"):
            assert any(name.startswith(f"{operation}[{dtype}") for name in names)


def test_arguments_of_one_and_long_strides_are_covered_for_every_operation() -> None:
    names = [variant.name for variant in aot.variants()]
    operations = {name.split("[")[0] for name in names}
    assert {name.split("[")[0] for name in names if name.endswith("+ones")} == operations
    # Partial results are made contiguous, so their merge has no strides.
    assert {name.split("[")[0] for name in names if name.endswith("+long")} == operations - {"merge_partials"}


def test_a_kernel_that_does_not_compile_is_reported() -> None:
    code = """
import dataclasses
from dtk_kernels import aot
variant = aot.variants("merge_partials[p2,d128]")[0]
broken = dataclasses.replace(variant, constants={**variant.constants, "TILE_D": 48})
result = aot._compile(broken, "sm90", 90)
print(result.ok, result.error)
"""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False CompilationError")
    assert "power of 2" in done.stdout


@pytest.mark.interp
def test_a_process_with_the_interpreter_refuses() -> None:
    from dtk_kernels.triton_support import interpreting

    if not interpreting():
        pytest.skip("Triton compiles in this process")
    with pytest.raises(RuntimeError, match=r"python -m dtk_kernels\.aot"):
        next(aot.compile_all(["sm90"]))


@pytest.mark.parametrize("target", ["sm9", "90", "gfx942", ""])
def test_unknown_target(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        aot.main(["--targets", target])
    assert exit_info.value.code == 2
    assert f"target must look like sm90, got {target!r}" in capsys.readouterr().err


def test_the_compiler_interface_has_not_moved() -> None:
    """`triton_compiler.py` leans on these; if this fails after an upgrade, mend it there."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    assert {"src", "target", "options"} <= set(inspect.signature(triton.compile).parameters)
    assert {"fn", "signature", "constexprs", "attrs"} <= set(inspect.signature(ASTSource).parameters)
    target = GPUTarget("cuda", 90, 32)
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)


def test_a_variant_that_names_no_parameter_is_refused() -> None:
    import dataclasses

    variant = dataclasses.replace(aot.variants("merge_partials")[0], aligned=frozenset({"no_such"}))
    with pytest.raises(ValueError, match=r"not parameters of _merge_partials_kernel: \['no_such'\]"):
        variant.signature()


def test_a_parameter_that_must_not_matter_exists() -> None:
    from dtk_kernels.triton_support import jit

    def kernel(source: object, num_rows: int) -> None: ...

    with pytest.raises(ValueError, match=r"not parameters of kernel: \['num_columns'\]"):
        jit(unspecialized=("num_rows", "num_columns"))(kernel)
