"""What Triton's own just-in-time compiler makes of our launches, up to the point where a GPU is needed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Variants = dict[str, dict[str, list[dict[str, Any]]]]
HEAD_DIMS = ("128", "80")


@pytest.fixture(scope="module")
def compiled() -> Variants:
    """Make the calls of a server once, in a process of their own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.kernels.triton.dry_run"],
        cwd=Path(__file__).parents[3], env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    variants: Variants = json.loads(done.stdout)
    return variants


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_a_growing_context_compiles_nothing_anew(compiled: Variants, head_dim: str) -> None:
    """A compilation in the middle of serving stalls every sequence for a second."""
    counts = {kernel: len(variants) for kernel, variants in compiled[head_dim].items()}
    # Merges differ in how many partials they load at once: 1, 8, 16, 32. Gathers and scatters are different.
    assert counts.pop("merge_partials_kernel") <= 4
    assert counts.pop("move_blocks_kernel") == 2
    attention = "sparse_decode_attention", "quantized_decode_attention"
    kernels = *attention, "block_score", "select_blocks", "block_digest"
    assert counts == {f"{kernel}_kernel": 1 for kernel in kernels}


@pytest.mark.slow
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_real_arguments_give_wide_accesses(compiled: Variants, head_dim: str) -> None:
    """What is compiled ahead of time is told which arguments are aligned; here Triton finds out by itself."""
    plain = compiled[head_dim]["sparse_decode_attention_kernel"]
    assert all(variant["async_copies"] > 0 for variant in plain)
    for variant in (*plain, *compiled[head_dim]["quantized_decode_attention_kernel"]):
        assert variant["copies_in_flight"] >= 2
    for kernel in ("block_score", "block_digest", "merge_partials", "move_blocks"):
        assert all(variant["vector_loads"] > 0 for variant in compiled[head_dim][f"{kernel}_kernel"])
