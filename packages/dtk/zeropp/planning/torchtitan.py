"""A plan as recipes for torchtitan: a TOML job configuration, and a Python function for its newer releases.

torchtitan read TOML up to its 0.2 releases (keys of `torchtitan/config/job_config.py`); since 2026 a
configuration is a function that returns `Trainer.Config` (keys of `torchtitan/config/parallelism.py` and
`training.py` at commit 15e24313). Both name the schedule's CSV, for which torch's runtime then gathers and
reduces as it sees fit. What torchtitan has no key for is said in comments.
"""

from typing import Final

from dtk.workload.transformer import TransformerShape
from dtk.zeropp.planning.evaluation import Evaluated
from dtk.zeropp.planning.stock import TORCH_ACTIVE_STAGES, gib, stock_memory

__all__ = ["recipe_python", "recipe_toml"]

_TOML_KEYS: Final = "torchtitan 0.2 (torchtitan/config/job_config.py)"
_PYTHON_KEYS: Final = "torchtitan's main at commit 15e24313"

_FILL_IN: Final = "FILL_IN"
_FLAVORS: Final = {
    # layers, hidden size, heads, key and value heads, inner size of the MLP, vocabulary
    (32, 4096, 32, 8, 14336, 128256): "8B",
    (80, 8192, 64, 8, 28672, 128256): "70B",
    (126, 16384, 128, 8, 53248, 128256): "405B",
}
_PYTHON_FLAVORS: Final = frozenset({"8B", "70B"})
"""Those that torchtitan's main branch has a recipe for."""


def recipe_toml(evaluated: Evaluated, csv_name: str) -> str:
    """Return the TOML file; `csv_name` is the schedule beside it."""
    parallelism = "\n".join(f"{key} = {_toml(value)}" for key, value in _parallelism(evaluated).items())
    job, share = evaluated.estimate.run.job, _share(evaluated)
    micro_batch = evaluated.candidate.micro_batch
    return f"""# Job configuration for {_TOML_KEYS}: torchrun ... --job.config_file THIS_FILE
{_comments(evaluated)}
{_stock_comments(evaluated, limit_is_set=False)}
[job]
description = "ZeroPP plan for {evaluated.estimate.run.shape.name}"

[model]
{_toml_model(evaluated.estimate.run.shape)}

[training]
local_batch_size = {share}
global_batch_size = {job.global_batch}
seq_len = {job.sequence_tokens}
mixed_precision_param = "bfloat16"
mixed_precision_reduce = "float32"

[parallelism]
{parallelism}
pipeline_parallel_schedule_csv = "{csv_name}"
pipeline_parallel_microbatch_size = {micro_batch}

[activation_checkpoint]
mode = "{evaluated.candidate.recomputation}"
"""


def recipe_python(evaluated: Evaluated, csv_name: str) -> str:
    """Return a module with a function that makes the configuration; `csv_name` is the schedule beside it."""
    lines = [f"    parallelism.{key} = {value!r}" for key, value in _parallelism(evaluated).items()]
    run, candidate = evaluated.estimate.run, evaluated.candidate
    tokens = candidate.micro_batch * run.job.sequence_tokens
    if candidate.recomputation == "full":
        checkpoint = "FullActivationRematConfig()"
        imported = "from torchtitan.distributed.activation_checkpoint import FullActivationRematConfig\n"
    else:
        checkpoint, imported = "None", ""
    settings = "\n".join(lines)
    return f'''# Configuration for {_PYTHON_KEYS}: put it beside its CSV on the import path, then
# MODULE=torchtitan_recipe CONFIG=zeropp NGPU=... ./run_train.sh
{_comments(evaluated)}
{_stock_comments(evaluated, limit_is_set=True)}
from pathlib import Path

{imported}from torchtitan.trainer import Trainer

{_python_model(run.shape)}


def zeropp() -> Trainer.Config:
    config = base(seq_len={run.job.sequence_tokens})
    config.training.num_tokens_per_microbatch_per_dp_rank = {tokens}
    config.training.num_tokens_per_train_step = {run.job.global_batch_tokens}
    config.training.max_context_length = {run.job.sequence_tokens}
    config.activation_checkpoint = {checkpoint}
    parallelism = config.parallelism
{settings}
    parallelism.pipeline_parallel_schedule_csv = str(Path(__file__).with_name("{csv_name}"))
    parallelism.num_pp_microbatches = {run.num_microbatches}
    parallelism.pp_max_unsharded_active_stages = {candidate.schedule.resident_chunks}
    return config
'''


def _flavor(shape: TransformerShape) -> str | None:
    """Return what torchtitan calls a Llama 3 of these sizes."""
    sizes = shape.num_layers, shape.hidden_size, shape.num_heads, shape.num_kv_heads
    is_llama = shape.family == "llama" and not (shape.tied_embeddings or shape.qkv_bias or shape.qk_norm)
    return _FLAVORS.get((*sizes, shape.ffn_size, shape.vocab_size)) if is_llama else None


def _toml_model(shape: TransformerShape) -> str:
    if (flavor := _flavor(shape)) is not None:
        return f'name = "llama3"\nflavor = "{flavor}"'
    return f'{_sizes(shape)}\nname = "{_FILL_IN}"\nflavor = "{_FILL_IN}"'


def _python_model(shape: TransformerShape) -> str:
    flavor = _flavor(shape)
    if flavor in _PYTHON_FLAVORS:
        return f"from torchtitan_recipes.models.llama3 import llama3_{flavor.lower()} as base"
    # No such module: the recipe stops there until somebody names one.
    return f"{_sizes(shape)}\nfrom {_FILL_IN} import {_FILL_IN} as base"


def _sizes(shape: TransformerShape) -> str:
    """Return a comment that says what a model for the recipe must be."""
    mlp = "a gated MLP" if shape.gated else "an MLP"
    heads = f"{shape.num_heads} heads of {shape.head_dim}, {shape.num_kv_heads} key and value heads"
    lines = [
        f"{_FILL_IN}: torchtitan has no recipe for {_one_line(shape.name)}. Define a model of its sizes,",
        f"and name it here: {shape.num_layers} layers, hidden size {shape.hidden_size}, {heads},",
        f"{mlp} of inner size {shape.ffn_size}, {shape.vocab_size} tokens.",
    ]
    return "\n".join(f"# {line}" for line in lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _stock_comments(evaluated: Evaluated, *, limit_is_set: bool) -> str:
    """Return what stock torch holds, which is not what the plan does."""
    stock = stock_memory(evaluated)
    held_bytes = stock.least_bytes if limit_is_set else stock.default_bytes
    held = f"{gib(held_bytes)} ({held_bytes} bytes, simulated)"
    lines = [
        f"Memory of the fullest rank: {gib(stock.plan_bytes)} in the plan; under stock torch {held},",
        f"of {gib(stock.limit_bytes)}. Stock torch reduces a stage's gradients only after its last",
        "micro-batch: all stages of a rank stay unreduced together.",
    ]
    if not limit_is_set:
        lines.append(
            f"It gathers up to {TORCH_ACTIVE_STAGES} stages of a rank at once where the plan gathers "
            f"{stock.active_stages}; these releases have no key for that."
        )
    if held_bytes > stock.limit_bytes:
        lines.append("THIS DOES NOT FIT: plan with fewer stages on a rank (more --pp), or more chips.")
    return "\n".join(f"# {line}" for line in lines)


def _share(evaluated: Evaluated) -> int:
    """Sequences of an iteration that a data-parallel rank trains on."""
    return evaluated.candidate.micro_batch * evaluated.estimate.run.num_microbatches


def _parallelism(evaluated: Evaluated) -> dict[str, int | str]:
    """Return what both forms call the same."""
    candidate, run = evaluated.candidate, evaluated.estimate.run
    return {
        "data_parallel_replicate_degree": candidate.num_replicas,
        "data_parallel_shard_degree": candidate.sharding.ranks,
        # The schedule frees what it has gathered.
        "fsdp_reshard_after_forward": "never",
        "tensor_parallel_degree": candidate.tensor_parallel,
        "pipeline_parallel_degree": candidate.pipeline_parallel,
        "pipeline_parallel_layers_per_stage": run.stage_layers[0],
        "pipeline_parallel_first_stage_less_layers": 0,
        "pipeline_parallel_last_stage_less_layers": 0,
        # Says how the model is cut; the order is the CSV's.
        "pipeline_parallel_schedule": "Interleaved1F1B" if candidate.chunks > 1 else "1F1B",
    }


def _comments(evaluated: Evaluated) -> str:
    candidate, run = evaluated.candidate, evaluated.estimate.run
    lines = [
        f"Simulated by dtk: {evaluated.iteration_s:.4g} s an iteration on {run.machine.name}.",
        "Stock torch gathers and reduces by rules of its own, not once a unit as the plan has it.",
    ]
    if candidate.keep_last_chunk:
        lines.append("The plan spares the last stage from recomputation; torchtitan has no key for that.")
    if candidate.sharding.optimizer_replicas > 1:
        lines.append(
            "The plan shards optimizer states over replicas too (zero3-zero1); FSDP2 replicates them."
        )
    if candidate.replicas_outermost:
        lines.append("The plan has replicas outside the pipeline; torchtitan has the pipeline outermost.")
    return "\n".join(f"# {line}" for line in lines)


def _toml(value: int | str) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
