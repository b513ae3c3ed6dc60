"""Every operation that `Workers` takes: the results of the direct call, and the errors, from threads."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dtk_kernels import attention, kv
from dtk_kernels.workers import Job, Workers

INT = torch.int32


def tensors(seed: int = 0) -> dict[str, Any]:
    """Enough of everything for several tasks of each kind."""
    generator = torch.Generator().manual_seed(seed)
    keys = (
        torch.randn((40, 4, 32, 64), generator=generator).half().transpose(1, 2)
    )  # [40, 32, 4, 64]: strided
    low, high = attention.block_digest(keys, torch.full((40,), 4, dtype=INT))
    return {
        "keys": keys,
        "lengths": torch.randint(0, 5, (40,), generator=generator, dtype=INT),
        "query": torch.randn((3, 64, 64), generator=generator),
        "low": low,
        "high": high,
        "table": torch.randint(-1, 40, (3, 70), generator=generator, dtype=INT),
        "scores": torch.randn((3, 5, 30_000), generator=generator),
        "forced": torch.rand((3, 30_000), generator=generator) > 0.999,
        "ids": torch.tensor([3, -1, 39, 0, -1, 3, *range(20)], dtype=INT),
    }


def direct(implementation: str, t: dict[str, Any]) -> dict[str, Any]:
    """Results of all operations on the calling thread."""
    pool = t["keys"].clone()
    distinct = t["ids"][6:]
    kv.scatter_blocks_(pool, distinct, pool[20:].neg(), implementation=implementation)
    digest = attention.block_digest(t["keys"], t["lengths"], implementation=implementation)
    query, low, high, table = t["query"], t["low"], t["high"], t["table"]
    results = {
        name: attention.block_score(
            query, low, high, table, head_reduction=name, implementation=implementation
        )
        for name in ("layer", "group_sum", "group_max")
    }
    forced = t["forced"]
    selected = attention.select_blocks(t["scores"], 90, forced=forced, implementation=implementation)
    return results | {
        "digest": digest,
        "select": selected,
        "select_unforced": attention.select_blocks(t["scores"], 7, implementation=implementation),
        "gather": kv.gather_blocks(t["keys"], t["ids"], implementation=implementation),
        "scatter": pool,
    }


def submitted(workers: Workers, t: dict[str, Any]) -> dict[str, Any]:
    """The same through workers; tables are overwritten as soon as they have been handed over."""
    t = t | {name: t[name].clone() for name in ("lengths", "table", "ids")}
    pool = t["keys"].clone()
    query, low, high, table = t["query"], t["low"], t["high"], t["table"]
    jobs: dict[str, Job[Any]] = {
        name: workers.submit_block_score(query, low, high, table, head_reduction=name)
        for name in ("layer", "group_sum", "group_max")
    }
    jobs["digest"] = workers.submit_block_digest(t["keys"], t["lengths"])
    jobs["select"] = workers.submit_select_blocks(t["scores"], 90, forced=t["forced"])
    jobs["select_unforced"] = workers.submit_select_blocks(t["scores"], 7)
    jobs["gather"] = workers.submit_gather_blocks(t["keys"], t["ids"])
    scatter = workers.submit_scatter_blocks(pool, t["ids"][6:], pool[20:].neg())
    for name in ("lengths", "table", "ids"):
        t[name].fill_(-100)
    results = {name: job.wait() for name, job in jobs.items()}
    assert scatter.wait() is None
    return results | {"scatter": pool}


def test_results_are_those_of_the_direct_call(workers: Workers, kind: str) -> None:
    given = tensors()
    expected = direct("native" if kind == "native" else "reference", given)
    results = submitted(workers, given)
    assert results.keys() == expected.keys()
    for name, result in results.items():
        torch.testing.assert_close(
            result,
            expected[name],
            rtol=0,
            atol=0,
            equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.native
@pytest.mark.parametrize("groups", [(1, None), (3, 1), (4, 2), (5, None)])
def test_results_do_not_depend_on_threads_and_groups(groups: tuple[int, int | None]) -> None:
    given = tensors(1)
    expected = direct("native", given)
    with Workers(*groups) as several:
        for name, result in submitted(several, given).items():
            torch.testing.assert_close(result, expected[name], rtol=0, atol=0)


Submission = Callable[[Workers, dict[str, Any]], Job[Any]]
WRONG_VALUES: dict[str, tuple[Submission, str]] = {
    "attention": (
        lambda w, t: w.submit_sparse_decode_attention(
            t["query"], t["keys"], t["keys"], t["table"][:, None] + 1, torch.ones_like(t["table"][:, None])
        ),
        r"^block_table holds 40; ids are -1 \(no block\) or below 40",
    ),
    "digest": (
        lambda w, t: w.submit_block_digest(t["keys"], t["lengths"] + 1),
        r"^block_lengths holds 5; lengths must be in 0..4",
    ),
    "score": (
        lambda w, t: w.submit_block_score(t["query"], t["low"], t["high"], t["table"] - 1),
        r"^block_table holds -2; ids are -1 \(no block\) or below 40",
    ),
    "select": (
        lambda w, t: w.submit_select_blocks(t["scores"], 1, forced=torch.ones_like(t["forced"])),
        r"^num_selected is 1, but a row of forced has 30000 columns set",
    ),
}


@pytest.mark.parametrize("operation", WRONG_VALUES)
def test_an_error_in_a_job_reaches_every_waiter(workers: Workers, operation: str) -> None:
    submit, message = WRONG_VALUES[operation]
    job = submit(workers, tensors())
    seen: list[str] = []

    def wait() -> None:
        with pytest.raises(ValueError, match=message) as caught:
            job.wait()
        seen.append(str(caught.value))

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    wait()
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert job.done()
    workers.submit_gather_blocks(torch.ones(2, 3), torch.zeros(1, dtype=INT)).wait()  # the threads go on


def test_wrong_ids_show_at_submission_and_write_nothing(workers: Workers) -> None:
    pool, blocks = torch.zeros(3, 2), torch.ones(2, 2)
    with pytest.raises(ValueError, match=r"^block_ids holds 3; ids are -1"):
        workers.submit_gather_blocks(pool, torch.tensor([0, 3], dtype=INT))
    with pytest.raises(ValueError, match=r"^block_ids holds -2; ids are -1"):
        workers.submit_scatter_blocks(pool, torch.tensor([0, -2], dtype=INT), blocks)
    with pytest.raises(ValueError, match=r"^block_ids holds 1 more than once"):
        workers.submit_scatter_blocks(pool, torch.tensor([1, 1], dtype=INT), blocks)
    assert not pool.any()


def test_wrong_arguments_show_at_submission(workers: Workers) -> None:
    t = tensors()
    with pytest.raises(ValueError, match=r"^block_lengths has shape"):
        workers.submit_block_digest(t["keys"], t["lengths"][1:])
    with pytest.raises(ValueError, match=r"^head_reduction must be one of"):
        workers.submit_block_score(t["query"], t["low"], t["high"], t["table"], head_reduction="sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^num_selected must be at least 0"):
        workers.submit_select_blocks(t["scores"], -1)
    meta = torch.ones(2, 3, device="meta")
    with pytest.raises(ValueError, match=r"^pool must be a CPU tensor"):
        workers.submit_gather_blocks(meta, torch.zeros(1, dtype=INT, device="meta"))


def test_scatters_read_a_shared_pool_before_they_write(workers: Workers) -> None:
    pool = torch.arange(2000.0).reshape(1000, 2)
    expected = pool.flip(0).clone()
    ids = torch.arange(999, -1, -1, dtype=INT)
    workers.submit_scatter_blocks(pool, ids, pool).wait()
    assert torch.equal(pool, expected)


def test_work_without_any_task_is_done(workers: Workers) -> None:
    none = torch.zeros(0, dtype=INT)
    assert workers.submit_gather_blocks(torch.ones(2, 3), none).wait().shape == (0, 3)
    assert workers.submit_block_digest(torch.ones(0, 1, 2, 4), none).wait()[0].shape == (0, 1, 4)
    assert workers.submit_select_blocks(torch.ones(0, 1, 5), 2).wait().shape == (0, 1, 2)
    assert workers.submit_select_blocks(torch.ones(1, 1, 0), 2).wait().tolist() == [[[-1, -1]]]
    empty = torch.zeros((1, 0), dtype=INT)
    scores = workers.submit_block_score(torch.ones(1, 2, 4), torch.ones(3, 2, 4), torch.ones(3, 2, 4), empty)
    assert scores.wait().shape == (1, 1, 0)
