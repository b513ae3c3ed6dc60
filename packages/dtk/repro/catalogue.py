"""Find the claims: load the shipped claims files, and pick claims by paper or id."""

import difflib
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from importlib.resources.abc import Traversable

from dtk.errors import InputError
from dtk.repro.claim import Claim, Paper

__all__ = ["load_papers", "select_claims", "shipped_claims_folder", "total_minutes"]


def shipped_claims_folder() -> Traversable:
    """Return the folder of claims files inside the installed package."""
    return resources.files("dtk.repro") / "claims"


def load_papers(folder: Traversable | None = None) -> tuple[Paper, ...]:
    """Load every claims file of a folder (by default the shipped ones), sorted by name.

    Raises:
        ValueError: For a file that does not fit the schema; the text starts with the file's name.
    """
    folder = shipped_claims_folder() if folder is None else folder
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name
    )
    return tuple(_load_paper(file) for file in files)


def _load_paper(file: Traversable) -> Paper:
    try:
        paper = Paper.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from error
    if file.name != f"{paper.paper}.toml":
        raise ValueError(f"{file.name}: paper is {paper.paper!r}, but must be the file's name")
    return paper


def select_claims(
    papers: Iterable[Paper], names: Sequence[str] = (), *, quick: bool = False
) -> tuple[Claim, ...]:
    """Pick claims by paper or id, without repeats and in catalogue order; no names means all of them.

    Args:
        papers: The catalogue.
        names: Papers (`scout`) and claim ids (`scout.query-cosine`), mixed as the user typed them.
        quick: Keep only the claims marked quick, and those without a check, which cost nothing.

    Raises:
        InputError: For a name that is neither, with the nearest names, or if nothing is left.
    """
    papers = tuple(papers)
    claims = [claim for paper in papers for claim in paper.claims]
    known = [paper.paper for paper in papers] + [claim.id for claim in claims]
    for name in names:
        if name not in known:
            raise InputError(
                "unknown paper or claim", field="CLAIM", value=name, hint=_suggestion(name, known)
            )
    wanted = [
        claim
        for claim in claims
        if (not names or claim.id in names or claim.paper in names)
        and (not quick or claim.quick or claim.check is None)
    ]
    if not wanted:
        raise InputError("none of these claims is marked quick", field="--quick", hint="leave --quick out")
    return tuple(wanted)


def total_minutes(claims: Iterable[Claim]) -> float:
    """Return the rough time of a run of these claims; those that share an experiment take its time once."""
    by_experiment: dict[str, float] = {}
    for claim in claims:
        if claim.check is not None:
            experiment = claim.experiment or claim.id
            by_experiment[experiment] = max(by_experiment.get(experiment, 0), claim.minutes)
    return sum(by_experiment.values())


def _suggestion(name: str, known: Sequence[str]) -> str:
    """Say what to do about an unknown name; the part after the paper decides which claims are near."""
    tails = {known_name.rpartition(".")[2]: known_name for known_name in known}
    near = difflib.get_close_matches(name.rpartition(".")[2], tails, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(tails[tail] for tail in near)}? 'dtk repro list' shows all"
    return "'dtk repro list' shows all"
