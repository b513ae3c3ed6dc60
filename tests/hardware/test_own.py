"""A file of this machine's figures reads back as hardware, in both forms, with any name and text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.hardware import load_catalogue, packaged_catalogue
from dtk.hardware.machine import MachineFigure
from dtk.hardware.own import check_file, hardware_text, machine_tables


def figure(name: str, unit: str, median: float) -> MachineFigure:
    values = {"name": name, "unit": unit, "median": median, "low": median / 2, "high": 2 * median}
    return MachineFigure.model_validate(values | {"rounds": 3})


FIGURES = [
    figure("read torch_sum", "bytes_per_s", 18e9),
    figure("read native_read", "bytes_per_s", 20e9),
    figure("copy torch_copy", "bytes_per_s", 25e9),
    figure("gemm fp32 64", "flop_per_s", 70e9),
    figure("gemm fp32 512", "flop_per_s", 90e9),
    figure("gemm bf16 64", "flop_per_s", 180e9),
    figure("loopback round trip", "s", 40e-6),
    figure("loopback stream", "bytes_per_s", 3e9),
]


@pytest.mark.parametrize("ending", ["toml", "yaml", "yml"])
def test_the_best_of_each_kind_is_written(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"mine.{ending}"
    check_file(file, "desk")
    tables = machine_tables(FIGURES, name="desk", vendor="AMD", memory_bytes=2**34 + 5, source="timed")
    file.write_bytes(hardware_text(tables, file))
    known = load_catalogue(file)
    chip, cluster = known.chip("desk"), known.cluster("desk cluster")
    assert (chip.vendor, chip.memory_bytes, chip.memory_bytes_per_s) == ("AMD", 2**34 + 5, 20e9)
    assert chip.peak_flop_per_s.model_dump(exclude_none=True) == {"fp32": 90e9, "bf16": 180e9}
    assert chip.source("peak_flop_per_s.bf16").title == "timed"
    assert known.num_chips(cluster) == 1
    node = known.node(cluster.groups[0].node)
    assert known.network_bytes_per_s(node) == known.pair_bytes_per_s(node) == 3e9
    assert known.link(node.network).latency_s == pytest.approx(20e-6)
    assert "&" not in file.read_text()  # YAML's anchors are no text for people


def test_a_machine_without_fast_bf16_has_no_such_peak() -> None:
    some = [one for one in FIGURES if "bf16" not in one.name]
    tables = machine_tables(some, name="desk", vendor="AMD", memory_bytes=2**30, source="timed")
    assert tables["chips"][0]["peak_flop_per_s"] == {"fp32": "90GFLOP/s"}


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)


@given(name=TEXTS.map(lambda text: f"{text}a1{text}"), vendor=TEXTS.map(lambda text: f"x{text}"))
def test_any_text_survives(name: str, vendor: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("own")
    tables = machine_tables(FIGURES, name=name, vendor=vendor, memory_bytes=2**30, source="'\"\\#: {")
    for ending in ("toml", "yaml"):
        file = folder / f"mine.{ending}"
        file.write_bytes(hardware_text(tables, file))
        chip = load_catalogue(file).chip(name)
        assert (chip.name, chip.vendor, chip.source("memory_bytes").title) == (name, vendor, "'\"\\#: {")


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("mine.json", "desk", r"--write.*must end in \.toml"),
        ("there.toml", "desk", "is there already"),
        ("no/mine.toml", "desk", "the folder does not exist"),
        ("mine.toml", " - ", "must have a letter"),
        ("mine.toml", "a100", r"--name.*is dtk's own chip A100-SXM-80GB"),
        ("mine.toml", "DGX 2", "is dtk's own node DGX-2"),
    ],
)
def test_what_will_not_do_is_said_before_measuring(
    tmp_path: Path, path: str, name: str, message: str
) -> None:
    (tmp_path / "there.toml").write_text("")
    with pytest.raises(InputError, match=message):
        check_file(tmp_path / path, name)
    assert packaged_catalogue().chip("A100").name == "A100-SXM-80GB"
