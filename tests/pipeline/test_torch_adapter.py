"""Our generators against torch's, action by action."""

from typing import Any

import pytest

from dtk.errors import InputError
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.text import schedule_from_text, schedule_to_text
from dtk.pipeline.torch_adapter import PRIVATE_NAMES, TORCH_NAMES, from_torch, to_torch, torch_schedule

SIZES = [(1, 1), (1, 5), (2, 4), (2, 9), (3, 2), (3, 6), (3, 11), (4, 8), (4, 10), (5, 25), (8, 16)]


@pytest.mark.parametrize(("module", "name"), PRIVATE_NAMES)
def test_torch_still_has_the_private_names(module: Any, name: str) -> None:
    assert hasattr(module, name)


# torch refuses 1F1B with fewer micro-batches than ranks, DualPipeV with fewer than stages, and an interleaved
# schedule whose micro-batches do not divide into its rounds.
@pytest.mark.parametrize(
    ("name", "num_chunks", "refused"),
    [
        ("gpipe", 1, []),
        ("1f1b", 1, [(3, 2)]),
        ("interleaved", 2, [(2, 9), (3, 11)]),
        ("interleaved", 3, [(2, 9), (3, 11)]),
        ("bfs", 2, []),
        ("bfs", 3, []),
        ("zb-h1", 2, [(2, 9), (3, 11)]),
        ("zb-h1", 3, [(2, 9), (3, 11)]),
        ("zb-v", 2, []),
        ("dualpipe-v", 2, [(1, 1), (3, 2)]),
    ],
)
def test_the_same_schedule_as_torch(name: str, num_chunks: int, refused: list[tuple[int, int]]) -> None:
    for num_ranks, num_microbatches in SIZES:
        sizes: dict[str, Any] = {
            "num_ranks": num_ranks,
            "num_chunks": num_chunks,
            "num_microbatches": num_microbatches,
        }
        if (num_ranks, num_microbatches) in refused:
            with pytest.raises(InputError, match="torch makes no such schedule"):
                torch_schedule(TORCH_NAMES[name], **sizes)
            continue
        ours = make_schedule(name, **sizes, reverse_backward=name == "bfs")
        theirs = torch_schedule(TORCH_NAMES[name], **sizes)
        assert ours.actions == theirs.actions, sizes
        assert ours.rank_of_stage == theirs.rank_of_stage


def test_every_name_of_torch_is_compared() -> None:
    assert set(TORCH_NAMES) < set(SCHEDULES)


@pytest.mark.parametrize("name", ["dualpipe-v", "zeropp"])
def test_there_and_back(name: str) -> None:
    ours = make_schedule(name, num_ranks=3, num_chunks=2, num_microbatches=7)
    rows = to_torch(ours)
    assert from_torch(rows.values(), ours.rank_of_stage, 7, name=name) == ours


def test_torch_reads_our_text_and_we_read_what_it_writes(tmp_path: Any) -> None:
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti

    ours = make_schedule("dualpipe-v", num_ranks=2, num_chunks=2, num_microbatches=5)
    path = tmp_path / "schedule.csv"
    path.write_text(schedule_to_text(ours))
    runtime = object.__new__(PipelineScheduleMulti)
    runtime.pipeline_order = {}
    runtime.pp_group_size, runtime._num_stages, runtime._n_microbatches = 2, 4, 5
    runtime._stages = []
    runtime._load_csv(str(path))
    assert runtime.pipeline_order == to_torch(ours)
    runtime._dump_csv(str(path))
    assert schedule_from_text(path.read_text(), name="dualpipe-v") == ours
