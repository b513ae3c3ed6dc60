"""Start a run or take one up again: from what the user typed to a folder, a configuration and a context."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dtk.errors import InputError, RunFailedError
from dtk.repro.catalogue import load_papers, select_claims
from dtk.repro.environment import available_threads, capture_environment, hash_sources
from dtk.repro.folder import RunFolder, find_run, write_atomically
from dtk.repro.report import GENERATOR
from dtk.repro.result import RunConfig
from dtk.repro.values import MAX_THREADS

__all__ = ["Request", "copy_report", "open_run"]


class Request(NamedTuple):
    """What the user asked for; None and empty mean "not said".

    Attributes:
        names: Papers and claim ids.
        quick: Only claims marked quick.
        resume: A run's folder, or `latest`.
        out: Folder that holds the runs.
        seed: Seed of all random choices.
        threads: CPU threads in all.
    """

    names: Sequence[str] = ()
    quick: bool = False
    resume: str | None = None
    out: Path = Path("runs")
    seed: int | None = None
    threads: int | None = None


@contextlib.contextmanager
def open_run(request: Request, argv: tuple[str, ...]) -> Iterator[tuple[RunFolder, RunConfig]]:
    """Make a run's folder, or open the one to resume, and hold it together with its configuration.

    A resumed run goes on as it was started: options may be left out, and must not contradict. Torch gets the
    run's number of threads.

    Raises:
        InputError: For an unknown claim, a folder that is no run or is in use, or a contradiction.
    """
    if request.resume is None:
        config = _fresh_config(request)
        _set_torch_threads(config.threads)
        folder = RunFolder.create(request.out, config, argv, capture_environment())
        with folder.writing():
            yield folder, config
        return
    folder = find_run(request.resume, request.out)
    with folder.writing():
        started = folder.manifest().config
        _refuse_contradictions(request, started)
        _set_torch_threads(started.threads)
        config = started.model_copy(update={"source_hash": hash_sources()})
        folder.add_invocation(config, argv, capture_environment())
        yield folder, config


def copy_report(report: Path, target: Path) -> bool:
    """Copy the report, unless a file that dtk did not make is there; return whether it was copied.

    Raises:
        RunFailedError: If the disk refuses, or a folder, a pipe or the like has the name.
    """
    try:
        if target.exists():
            # Opening a pipe would wait for its other end, perhaps forever.
            if not target.is_file():
                raise RunFailedError(f"cannot write {target}: something that is no file has this name")
            with target.open(encoding="utf-8", errors="replace") as stream:
                if f'name="generator" content="{GENERATOR}"' not in stream.read(2000):
                    return False
        text = report.read_text(encoding="utf-8")
    except OSError as error:
        raise RunFailedError(f"cannot read {error.filename}: {error.strerror or error}") from error
    write_atomically(target, text)
    return True


def _fresh_config(request: Request) -> RunConfig:
    papers = load_papers()
    claims = select_claims(papers, request.names, quick=request.quick)
    used = {claim.paper for claim in claims}
    return RunConfig(
        claims=claims,
        references={paper.paper: paper.reference for paper in papers if paper.paper in used},
        seed=request.seed or 0,
        threads=request.threads or min(available_threads(), MAX_THREADS),
        source_hash=hash_sources(),
    )


def _refuse_contradictions(request: Request, started: RunConfig) -> None:
    hint = "leave it out to go on with the run as it was, or start a fresh run without --resume"
    for field, given, was in (
        ("--seed", request.seed, started.seed),
        ("--threads", request.threads, started.threads),
    ):
        if given is not None and given != was:
            raise InputError(f"the run was started with {was}", field=field, value=given, hint=hint)
    if request.names or request.quick:
        wanted = [claim.id for claim in select_claims(load_papers(), request.names, quick=request.quick)]
        if wanted != [claim.id for claim in started.claims]:
            raise InputError("the run was started with other claims", field="CLAIM", hint=hint)


def _set_torch_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
