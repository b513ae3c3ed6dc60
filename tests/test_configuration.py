"""Layered configuration: which layer wins, and what each mistake says."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk import units
from dtk.configuration import load_config, parse_assignment, read_config_file, validate
from dtk.errors import InputError


class Inner(pydantic.BaseModel, extra="forbid", frozen=True):
    depth: Annotated[int, pydantic.Field(ge=1)] = 2
    name: str = "inner"


class Outer(pydantic.BaseModel, extra="forbid", frozen=True):
    block_size: Annotated[int, pydantic.Field(ge=1)] = 32
    rate: float = 0.5
    inner: Inner = Inner()

    @pydantic.model_validator(mode="after")
    def _even(self) -> "Outer":
        if self.block_size % 2 and self.block_size > 1:
            raise ValueError("Block size must be even")
        return self


class Chip(pydantic.BaseModel):
    memory: units.Bytes


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text("block_size = 16\nrate = 0.25\n[inner]\ndepth = 3\n")
    return file


def test_later_layers_win(toml: Path) -> None:
    assert load_config(Outer) == Outer()
    assert load_config(Outer, file=toml) == Outer(block_size=16, rate=0.25, inner=Inner(depth=3))
    assignments = ["block_size=8", "inner.name=x"]
    expected = Outer(block_size=8, rate=0.25, inner=Inner(depth=3, name="x"))
    assert load_config(Outer, file=toml, assignments=assignments) == expected
    flags = {"block_size": 4, "rate": None}
    assert load_config(Outer, file=toml, assignments=assignments, flags=flags) == expected.model_copy(
        update={"block_size": 4}
    )


def test_toml_and_yaml_say_the_same(toml: Path, tmp_path: Path) -> None:
    yaml = tmp_path / "config.yaml"
    yaml.write_text("block_size: 16\nrate: 0.25\ninner:\n  depth: 3\n")
    assert read_config_file(yaml) == read_config_file(toml)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.toml", b"block_size = ", "not valid"),
        ("c.toml", b"\xff\xfe", "cannot read"),
        ("c.yaml", b"a: [1", "not valid"),
        ("c.yaml", b"- 1\n- 2\n", "must hold a table"),
        ("c.yaml", b"when: 2020-13-01", "not valid: month must be in 1..12"),
        ("c.yaml", b"n: " + b"9" * 5000, "not valid"),
        ("c.yaml", b"a: " + b"[" * 3000, "not valid"),
        ("c.yaml", b"a: !!timestamp soon", "not valid"),
        ("c.yaml", b"a: !!bool perhaps", "not valid"),
        ("c.yaml", b"a: &x [1, 1]\nb: [*x, *x]", "aliases"),
        ("c.yaml", b"a: &x [*x]", "aliases"),
        ("c.toml", b"n = " + b"9" * 5000, "not valid"),
        ("c.toml", b"a = " + b"[" * 3000, "nested too deeply"),
        ("c.yaml", b"!!python/object/apply:os.getcwd []", "not valid"),
        ("c.json", b"{}", "unknown kind of file"),
    ],
)
def test_bad_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_config_file(file)
    assert caught.value.field == "--config"
    assert caught.value.value == str(file)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["c.toml", "c.yaml"])
@pytest.mark.parametrize("content", [b"", b"# nothing set\n", b"\xef\xbb\xbf"])
def test_an_empty_file_sets_nothing(name: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert read_config_file(file) == {}


@pytest.mark.parametrize(("name", "text"), [("c.toml", "rate = 0.25"), ("c.yaml", "rate: 0.25")])
def test_a_byte_order_mark_is_not_part_of_the_first_key(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_config_file(file) == {"rate": 0.25}


def test_an_empty_path_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="it is a folder"):
        read_config_file(Path())


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    os.mkfifo(file)
    with pytest.raises(InputError, match="not a regular file"):
        read_config_file(file)


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_no_file_at_all(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    if kind == "folder":
        file.mkdir()
    with pytest.raises(InputError, match="cannot read the file"):
        read_config_file(file)


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("a=1", ["a"], 1),
        ("a.b = 1.5", ["a", "b"], 1.5),
        ("a=true", ["a"], True),
        ('a="1"', ["a"], "1"),
        ("a=text with spaces", ["a"], "text with spaces"),
        ("a=80GiB", ["a"], "80GiB"),
        ("a=[1, 2]", ["a"], [1, 2]),
        ("a=x=y", ["a"], "x=y"),
        ("a=", ["a"], ""),
    ],
)
def test_assignments(assignment: str, path: list[str], value: Any) -> None:
    assert parse_assignment(assignment) == (path, value)


@pytest.mark.parametrize("assignment", ["", "a", "=1", "a..b=1", ".a=1", "a.=1", " =1"])
def test_bad_assignments(assignment: str) -> None:
    with pytest.raises(InputError, match="must be KEY=VALUE"):
        parse_assignment(assignment)


@pytest.mark.parametrize("assignment", ["a=1\nb=2", "a=1\r\n[b]", "a=text\nmore", "a\nb=1"])
def test_an_assignment_sets_one_key(assignment: str) -> None:
    with pytest.raises(InputError, match="must be one line"):
        parse_assignment(assignment)


@pytest.mark.parametrize("text", ["[" * 3000, "{a=" * 3000, "9" * 5000], ids=["list", "table", "integer"])
def test_an_assignment_beyond_the_parser(text: str) -> None:
    with pytest.raises(InputError, match="not valid"):
        parse_assignment(f"a={text}")


def test_an_assignment_into_a_value(toml: Path) -> None:
    with pytest.raises(InputError, match="block_size is a value, not a table"):
        load_config(Outer, file=toml, assignments=["block_size.x=1"])


@given(st.text(st.characters(exclude_characters="\n\r"), max_size=30))
def test_an_assignment_never_crashes(text: str) -> None:
    path, value = parse_assignment(f"key={text}")
    assert path == ["key"]
    assert value is not None


@pytest.mark.parametrize(
    ("values", "field", "message", "hint"),
    [
        ({"block_size": 0}, "block_size", "must be greater than or equal to 1", None),
        ({"block_size": 3}, None, "block size must be even", None),
        ({"blocksize": 3}, "blocksize", "unknown key", "block_size, rate, inner"),
        ({"inner": {"depth": 0}}, "inner.depth", "must be greater than or equal to 1", None),
        ({"rate": "fast"}, "rate", "must be a valid number", None),
    ],
)
def test_what_pydantic_refuses(
    values: dict[str, Any], field: str | None, message: str, hint: str | None
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        validate(Outer, values)
    assert caught.value.field == field
    assert hint is None or hint in (caught.value.hint or "")


class Mixed(pydantic.BaseModel):
    either: int | bool = 1
    switch: bool = False
    anything: Any = None
    some: tuple[Annotated[int, pydantic.Field(ge=0)], ...] | int | None = None
    level: Literal[1, 2] = 1


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(
    ("model", "path"),
    [
        (Outer, "block_size"),
        (Outer, "rate"),
        (Outer, "inner.depth"),
        (Chip, "memory"),
        (Mixed, "some"),
        (Mixed, "level"),
    ],
)
def test_a_boolean_is_not_a_number(model: type[pydantic.BaseModel], path: str, value: bool) -> None:
    with pytest.raises(InputError, match="must be a number") as caught:
        load_config(model, assignments=[f"{path}={str(value).lower()}"])
    assert (caught.value.field, caught.value.value) == (path, value)


def test_a_boolean_in_a_list_is_not_a_number() -> None:
    with pytest.raises(InputError, match="must be a number"):
        load_config(Mixed, assignments=["some=[1, true]"])


def test_a_boolean_is_a_boolean() -> None:
    values = {"either": True, "switch": True, "anything": True}
    assert validate(Mixed, values).model_dump(include=set(values)) == values


def test_an_unknown_key_is_named_as_written() -> None:
    with pytest.raises(InputError, match="unknown key") as caught:
        load_config(Outer, assignments=["block-size=1"])
    assert caught.value.field == "block-size"


def test_the_offending_value_is_named() -> None:
    with pytest.raises(InputError) as caught:
        validate(Outer, {"inner": {"depth": -7}})
    assert str(caught.value) == "inner.depth: must be greater than or equal to 1 (got -7)"


def test_a_bad_unit_in_a_configuration_keeps_its_hint() -> None:
    with pytest.raises(InputError) as caught:
        validate(Chip, {"memory": "80Gb"})
    error = caught.value
    assert (error.field, error.value) == ("memory", "80Gb")
    assert error.hint == "write 80GB for bytes or 80Gbit for bits"
