"""Runs for the tests: one with sizes to calculate by hand, and any that hypothesis thinks of."""

from dataclasses import replace
from typing import Any, Literal

from hypothesis import strategies as st

from dtk.pipeline.iteration.run import FSDP, ScheduleChoice, TrainingRun
from dtk.workload import Layout, TrainingJob, TransformerShape
from dtk.workload.states import Sharding
from tests.costmodel.machines import machine_of_figures, machines, stack_of, stacks

# For each schedule the chunks that are tried.
CHUNKS = {
    "gpipe": (1,),
    "1f1b": (1,),
    "interleaved": (2, 3),
    "bfs": (1, 2),
    "zb-h1": (1,),
    "zb-h2": (1,),
    "zb-v": (2,),
    "dualpipe-v": (2,),
    "zeropp": (1, 2, 3),
}


def shape_of(**sizes: Any) -> TransformerShape:
    """A GPT of four layers without learned positions."""
    defaults = {"family": "gpt", "num_layers": 4, "hidden_size": 32, "num_heads": 4, "vocab_size": 100}
    return TransformerShape.from_values(defaults | sizes)


def run_of(**changes: Any) -> TrainingRun:
    """A run of 48 tokens a micro-batch, on nodes as large as the layout unless a machine is given."""
    layout = Layout(**changes.pop("layout", {}))
    job = TrainingJob(
        **(
            {"global_batch": 8, "sequence_tokens": 24, "micro_batch": 2, "flash_attention": False}
            | changes.pop("job", {})
        )
    )
    given: dict[str, Any] = {
        "shape": shape_of(),
        "machine": machine_of_figures(chips_per_node=layout.num_ranks),
        "stack": stack_of(),
    }
    return TrainingRun(job=job, layout=layout, **(given | changes))


@st.composite
def choices(draw: st.DrawFn, names: tuple[str, ...] = (*CHUNKS, FSDP)) -> tuple[ScheduleChoice, int, int]:
    """A schedule with pipeline ranks and chunks that it exists for."""
    name = draw(st.sampled_from(names))
    if name == FSDP:
        return ScheduleChoice(FSDP), 1, draw(st.sampled_from([1, 2]))
    chunks = draw(st.sampled_from(CHUNKS[name]))
    ranks = draw(st.integers(1, 4))
    # DualPipe-V's pairs of a forward and a backward need both chunks.
    resident = draw(st.integers(2 if name == "dualpipe-v" else 1, chunks))
    gathers: list[Literal["visit", "pass"]] = ["visit"] if name == "dualpipe-v" else ["visit", "pass"]
    choice = ScheduleChoice(name, resident_chunks=resident, gather=draw(st.sampled_from(gathers)))
    return choice, ranks, chunks


@st.composite
def runs(draw: st.DrawFn, names: tuple[str, ...] = (*CHUNKS, FSDP)) -> TrainingRun:
    """A small model in any layout, sharded in any way, on nodes of any size that divides the ranks."""
    choice, ranks, chunks = draw(choices(names))
    tensor, data = draw(st.sampled_from([1, 2, 3, 4])), draw(st.sampled_from([1, 2, 3, 4, 8]))
    layout = Layout(
        data_parallel=data,
        tensor_parallel=tensor,
        pipeline_parallel=ranks,
        chunks=chunks,
        sequence_parallel=draw(st.booleans()),
    )
    heads = 12
    shape = TransformerShape.from_values(
        {
            "family": draw(st.sampled_from(["gpt", "llama"])),
            "num_layers": ranks * chunks * draw(st.integers(1, 3)),
            "hidden_size": 96 * draw(st.integers(1, 40)),
            "num_heads": heads,
            "head_dim": 8 * draw(st.integers(1, 16)),
            "num_kv_heads": heads,
            "ffn_size": 48 * draw(st.integers(1, 100)),
            "vocab_size": draw(st.integers(1, 50_000)),
            "tied_embeddings": draw(st.booleans()),
        }
    )
    micro_batch = draw(st.sampled_from([1, 2, 4]))
    job = TrainingJob(
        global_batch=micro_batch * data * ranks * draw(st.integers(1, 3)),
        sequence_tokens=24 * draw(st.integers(1, 60)),
        micro_batch=micro_batch,
        recomputation=draw(st.sampled_from(["none", "selective", "full"])),
        flash_attention=draw(st.booleans()),
        dropout=draw(st.booleans()),
    )
    divisors = [each for each in range(1, layout.num_ranks + 1) if layout.num_ranks % each == 0]
    chips = draw(st.sampled_from(divisors))
    machine = replace(draw(machines()), chips_per_node=chips, num_nodes=layout.num_ranks // chips)
    return TrainingRun(
        shape,
        job,
        layout,
        machine,
        draw(stacks()),
        draw(shardings(data)),
        choice,
        replicas_outermost=draw(st.booleans()),
        keep_last_chunk=draw(st.booleans()),
    )


@st.composite
def shardings(draw: st.DrawFn, data_parallel: int) -> Sharding:
    stage = draw(st.sampled_from([0, 1, 3]))
    if stage == 0:
        return Sharding()
    ranks = draw(st.sampled_from([each for each in range(1, data_parallel + 1) if data_parallel % each == 0]))
    replicas = data_parallel // ranks if stage == 3 and draw(st.booleans()) else 1
    return Sharding(stage, ranks, replicas)
