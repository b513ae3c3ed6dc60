"""The schema of claims files, every shipped claim, and picking claims by name."""

import re
from pathlib import Path
from typing import Any

import pydantic
import pytest

from dtk.errors import InputError
from dtk.repro.catalogue import load_papers, select_claims, shipped_claims_folder, total_minutes
from dtk.repro.checks import bind_check
from dtk.repro.claim import Claim, Paper
from tests.repro.samples import claim, install, paper, parse, write_paper

SHIPPED = [shipped for file in load_papers() for shipped in file.claims]


def test_shipped_claims_exist_and_are_unique() -> None:
    ids = [shipped.id for shipped in SHIPPED]
    assert "scout.partial-merge" in ids
    assert len(ids) == len(set(ids))
    assert len(list(shipped_claims_folder().iterdir())) == len(load_papers())


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda shipped: shipped.id)
def test_each_shipped_claim_names_a_check_that_takes_its_parameters(shipped: Claim) -> None:
    if shipped.check is None:
        assert shipped.untestable
        assert not shipped.parameters
        assert not shipped.quick, "claims without a check are part of --quick anyway"
    else:
        bind_check(shipped.check, shipped.parameters)


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda shipped: shipped.id)
def test_each_shipped_claim_reads_well(shipped: Claim) -> None:
    assert shipped.statement.endswith(".")
    assert not re.search(r"\s\s|\n", shipped.statement)
    assert not shipped.title.endswith(".")
    assert shipped.where
    assert shipped.published.source


def test_quick_claims_take_less_than_fifteen_minutes_in_all() -> None:
    assert total_minutes(shipped for shipped in SHIPPED if shipped.quick) < 12


def test_claims_of_one_experiment_take_its_time_once() -> None:
    claims = parse(
        broken(id="sample.a", minutes=2, experiment="e"),
        broken(id="sample.b", minutes=3, experiment="e"),
        broken(id="sample.c", minutes=1),
        broken(id="sample.d", minutes=1),
        claim("sample.e", None, untestable="no machine", minutes=600),
    )
    assert total_minutes(claims) == 5


def broken(**changes: Any) -> dict[str, Any]:
    return claim("sample.one", "constant", parameters={"value": 1}) | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "red"}, "colour"),
        ({"id": "sample"}, "id"),
        ({"id": "sample.Upper"}, "id"),
        ({"check": "nodot"}, "check"),
        ({"check": None}, "either a check or"),
        ({"untestable": "no machine"}, "either a check or"),
        ({"memory": "1"}, "memory"),
        ({"minutes": -1}, "minutes"),
        ({"requires": ["luck"]}, "requires"),
        ({"basis": "guessed"}, "basis"),
        ({"published": {"value": 1}}, "source"),
        ({"published": {"value": 1, "source": "t", "page": 3}}, "page"),
        ({"published": {"value": float("nan"), "source": "t"}}, "finite"),
        ({"expected": {"value": 1, "tolerance": {"kind": "exact"}}}, "scale_rule"),
        (
            {"expected": {"value": 5, "tolerance": {"kind": "ratio", "low": 6}, "scale_rule": "s"}},
            "outside its own band",
        ),
        (
            {"expected": {"value": "text", "tolerance": {"kind": "analytic"}, "scale_rule": "s"}},
            "use the tolerance class exact",
        ),
        (
            {
                "expected": {
                    "value": {"a": 1},
                    "tolerance": {"kind": "statistical", "low": {"b": 0}},
                    "scale_rule": "s",
                }
            },
            "does not have",
        ),
        (
            {
                "expected": {
                    "value": {"a": 1, "b": 1},
                    "tolerance": {"kind": "statistical", "low": {"a": 0}},
                    "scale_rule": "s",
                }
            },
            "no band",
        ),
    ],
)
def test_a_broken_claim_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        Paper.model_validate(paper(broken(**changes)))


def test_a_file_with_repeated_or_foreign_ids_is_refused() -> None:
    with pytest.raises(pydantic.ValidationError, match=r"occur twice: sample\.one"):
        Paper.model_validate(paper(broken(), broken()))
    with pytest.raises(pydantic.ValidationError, match="do not start with 'sample'"):
        Paper.model_validate(paper(broken(id="scout.one")))


def test_errors_name_the_file(tmp_path: Path) -> None:
    folder = write_paper(tmp_path, broken(colour="red"))
    with pytest.raises(ValueError, match=r"(?s)^sample\.toml: .*colour"):
        load_papers(folder)
    (folder / "sample.toml").write_text("schema = ", encoding="utf-8")
    with pytest.raises(ValueError, match=r"^sample\.toml: "):
        load_papers(folder)
    (folder / "sample.toml").unlink()
    (write_paper(tmp_path, broken()) / "sample.toml").rename(folder / "other.toml")
    with pytest.raises(ValueError, match=r"^other\.toml: paper is 'sample'"):
        load_papers(folder)


@pytest.mark.parametrize(
    ("check", "parameters", "message"),
    [
        ("nothing.constant", {}, "no module of checks named 'nothing'"),
        ("sample.missing", {}, "no check named 'missing'"),
        ("sample.HOSTILE", {}, "no check named 'HOSTILE'"),
        ("sample.constant", {}, "value\n  Field required"),
        ("sample.constant", {"value": 1, "extra": 2}, "extra\n  Extra inputs are not permitted"),
        ("sample.wait", {"log": 3, "release": "x"}, "log\n  Input should be a valid string"),
    ],
)
def test_binding_refuses_what_does_not_fit(
    check: str, parameters: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    with pytest.raises(ValueError, match=re.escape(message)):
        bind_check(check, parameters)


def sample_papers() -> tuple[Paper, ...]:
    claims = [
        broken(id="sample.query-cosine"),
        broken(id="sample.cpu-ratio", quick=False),
        claim("sample.gpu-speed", None, untestable="no machine", quick=False),
    ]
    return (Paper.model_validate(paper(*claims)),)


@pytest.mark.parametrize(
    ("names", "quick", "picked"),
    [
        ([], False, ["query-cosine", "cpu-ratio", "gpu-speed"]),
        ([], True, ["query-cosine", "gpu-speed"]),
        (["sample"], False, ["query-cosine", "cpu-ratio", "gpu-speed"]),
        (
            ["sample.cpu-ratio", "sample.query-cosine", "sample.cpu-ratio"],
            False,
            ["query-cosine", "cpu-ratio"],
        ),
        (["sample.cpu-ratio", "sample.gpu-speed"], True, ["gpu-speed"]),
    ],
)
def test_picking_claims(names: list[str], quick: bool, picked: list[str]) -> None:
    chosen = select_claims(sample_papers(), names, quick=quick)
    assert [item.id for item in chosen] == [f"sample.{name}" for name in picked]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("sample.query-cosin", "did you mean sample.query-cosine?"),
        ("query-cosine", "did you mean sample.query-cosine?"),
        ("smple", "did you mean sample?"),
        ("sample.cpu_ratio", "did you mean sample.cpu-ratio"),
        ("entirely-different", "'dtk repro list' shows all"),
    ],
)
def test_an_unknown_name_gets_near_ones(name: str, suggestion: str) -> None:
    with pytest.raises(InputError) as caught:
        select_claims(sample_papers(), [name])
    assert suggestion in str(caught.value)
    assert name in str(caught.value)


def test_quick_with_nothing_quick_is_an_error() -> None:
    with pytest.raises(InputError, match="none of these claims is marked quick"):
        select_claims(sample_papers(), ["sample.cpu-ratio"], quick=True)
