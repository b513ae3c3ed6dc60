"""The packaged hardware: figures against the chips' units and clocks, names, and files of users."""

import tomllib
from pathlib import Path

import pytest
import yaml

from dtk.errors import InputError
from dtk.hardware import Chip, Node, Sourced, load_catalogue, packaged_catalogue
from dtk.hardware.text import figure_text, summary

KNOWN = packaged_catalogue()
ENTRIES = {entry.name: entry for entry in KNOWN.entries()}

# Units a chip, FLOP of fp16 products with fp32 accumulation that a unit does a cycle, and the clock, in Hz.
UNITS = {
    "V100-SXM-32GB": (80, 8 * 64 * 2, 1.530e9),
    "A100-SXM-80GB": (108, 4 * 256 * 2, 1.410e9),
    "H100-SXM-80GB": (132, 4 * 512 * 2, 1.830e9),
    "H100-PCIe-80GB": (114, 4 * 512 * 2, 1.620e9),
    "RTX-3090": (82, 4 * 64 * 2, 1.695e9),
    "RTX-2080-Ti": (68, 8 * 32 * 2, 1.545e9),
    "Titan-RTX": (72, 8 * 64 * 2, 1.770e9),
    "MI300X": (304, 4 * 256 * 2, 2.100e9),
    "Ascend-910B2": (24, 16 * 16 * 16 * 2, 1.800e9),
    "Ascend-910B3": (20, 16 * 16 * 16 * 2, 1.800e9),
}


FABRIC_LINKS = {
    "V100": 6,
    "A100": 12,
    "A800": 8,
    "H100": 18,
    "H200": 18,
    "H800": 8,
    "B200": 18,
    "GH200": 18,
    "MI300X": 7,
    "Ascend 910B": 7,
}


@pytest.mark.parametrize("name", UNITS)
def test_dense_peaks_are_what_units_and_clocks_give(name: str) -> None:
    """A figure with sparsity would be twice as large."""
    units, flop_per_cycle, clock_hz = UNITS[name]
    assert KNOWN.chip(name).peak("fp16") == pytest.approx(units * flop_per_cycle * clock_hz, rel=0.01)


@pytest.mark.parametrize("chip", KNOWN.chips, ids=lambda chip: chip.name)
def test_precisions_stand_in_the_ratios_of_their_widths(chip: Chip) -> None:
    """One figure with sparsity among dense ones would break a ratio."""
    rates = chip.peak_flop_per_s.model_dump(exclude_none=True)
    ratios = {"bf16": 1.0, "tf32": 0.5, "fp8": 2.0, "fp4": 4.0, "int8": 2.0}
    if chip.name in {"RTX-3090", "RTX-2080-Ti"}:
        ratios["int8"] = 4.0  # half rate with fp32 accumulation
    for precision in ratios.keys() & rates.keys():
        assert rates[precision] / rates["fp16"] == pytest.approx(ratios[precision], rel=0.025), precision
    assert rates.get("fp32", 0) <= rates.get("tf32", rates["fp16"])


@pytest.mark.parametrize(
    ("name", "links"),
    FABRIC_LINKS.items(),
)
def test_a_fabric_is_a_whole_number_of_links(name: str, links: int) -> None:
    chip = KNOWN.chip(name)
    assert chip.fabric is not None
    assert chip.fabric_bytes_per_s == links * KNOWN.link(chip.fabric).bytes_per_s


@pytest.mark.parametrize(("generation", "giga_transfers"), [(3, 8), (4, 16), (5, 32)])
def test_pcie_rates_follow_from_transfers_and_line_code(generation: int, giga_transfers: int) -> None:
    rate = KNOWN.link(f"PCIe {generation}.0").bytes_per_s
    assert rate == pytest.approx(16 * giga_transfers * 1e9 / 8 * 128 / 130, rel=1e-4)
    assert KNOWN.link("pcie-6").bytes_per_s == 16 * 64e9 / 8 * 242 / 256


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.name)
def test_every_figure_has_a_public_source(entry: Sourced) -> None:
    for path, value in entry.figures():
        source = entry.source(path)
        assert source.url is not None, f"{path} cites no document"
        assert source.url.startswith("https://")
        assert source.read_at is None or source.read_at.startswith("https://")
        assert not source.estimate or source.note, f"{path} is an estimate without a reason"
        assert value > 0


@pytest.mark.parametrize("chip", KNOWN.chips, ids=lambda chip: chip.name)
def test_magnitudes(chip: Chip) -> None:
    """A slip of a prefix, or bits for bytes, is a factor of 8 or 1000."""
    assert 8 * 2**30 <= chip.memory_bytes <= 256 * 2**30
    assert 0.5e12 <= chip.memory_bytes_per_s <= 8e12
    assert 50e12 <= chip.peak("fp16") <= 2.5e15
    assert KNOWN.link(chip.host_link).bytes_per_s >= 15e9


def test_what_nodes_send() -> None:
    assert KNOWN.network_bytes_per_s(KNOWN.node("8xA800-200Gb")) == 200e9 / 8
    assert KNOWN.network_bytes_per_s(KNOWN.node("8xA800-800Gb")) == 800e9 / 8
    assert KNOWN.network_bytes_per_s(KNOWN.node("DGX H100")) == 8 * 400e9 / 8
    assert KNOWN.pair_bytes_per_s(KNOWN.node("dgx-a100")) == 300e9
    assert KNOWN.pair_bytes_per_s(KNOWN.node("4xGH200")) == 150e9
    assert KNOWN.pair_bytes_per_s(KNOWN.node("8xMI300X")) == 64e9
    assert KNOWN.node("8xA800-800Gb").nics_of(5) == (2,)
    assert KNOWN.num_chips(KNOWN.cluster("64xA800-800Gb")) == 64
    host = KNOWN.node("DGX-A100").model_copy(update={"chip": "rtx3090", "topology": "host"})
    assert KNOWN.pair_bytes_per_s(host) == KNOWN.link("PCIe-4").bytes_per_s


@pytest.mark.parametrize("spelling", ["a800", "A800", "A800 SXM 80GB", "a800_sxm_80gb", "a800-80gb"])
def test_names_in_any_spelling(spelling: str) -> None:
    assert KNOWN.chip(spelling).name == "A800-SXM-80GB"
    assert KNOWN.entry(spelling) is KNOWN.chip(spelling)


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown chip") as caught:
        KNOWN.chip("H100-SMX")
    assert "H100-SXM-80GB" in (caught.value.hint or "")
    with pytest.raises(InputError, match="dtk hardware list"):
        KNOWN.entry("zzzzzzzz")
    with pytest.raises(InputError, match="unknown node"):
        KNOWN.node("A100-SXM-80GB")
    with pytest.raises(InputError, match=r"no such rate.*fp8.*it has fp32, tf32"):
        KNOWN.chip("A100").peak("fp8")


def test_every_entry_has_a_line_and_figures_with_units() -> None:
    for entry in ENTRIES.values():
        assert 3 < len(summary(entry)) < 60
    assert figure_text("peak_flop_per_s.bf16", 312e12) == "312TFLOP/s"
    assert figure_text("memory_bytes", 80 * 2**30) == "80GiB"
    assert figure_text("latency_s", 3.33e-6) == "3.33us"
    assert figure_text("latency_s", 1e-12) == "1e-12s"
    assert figure_text("bytes_per_s", 31.508e9) == "31.508GB/s"
    assert figure_text("num_chips", 8) == "8"


CHIP = """
[references.sheet]
title = "A sheet"
url = "https://example.org/sheet"

[[chips]]
name = "Toy"
vendor = "us"
memory_bytes = "1GiB"
memory_bytes_per_s = "10GB/s"
peak_flop_per_s = { fp32 = "1TFLOP/s" }
host_link = "pcie-3"
[chips.sources]
"*" = "measured here"
memory_bytes = { reference = "sheet", note = "page 2" }
"""


def test_a_users_file_in_toml_and_yaml(tmp_path: Path) -> None:
    toml, as_yaml = tmp_path / "mine.toml", tmp_path / "mine.yaml"
    toml.write_text(CHIP)
    as_yaml.write_text(yaml.safe_dump(tomllib.loads(CHIP)))
    assert load_catalogue(toml) == load_catalogue(as_yaml)
    chip = load_catalogue(toml).chip("toy")
    assert chip.source("memory_bytes").url == "https://example.org/sheet"
    assert chip.source("memory_bytes").note == "page 2"
    assert chip.source("peak_flop_per_s.fp32").title == "measured here"
    assert load_catalogue(toml).chip("A100") == KNOWN.chip("A100")
    assert load_catalogue() is KNOWN


def test_a_users_entry_replaces_ours_of_that_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(CHIP.replace('"Toy"', '"a800-sxm-80gb"'))
    assert load_catalogue(file).chip("A800-SXM-80GB").memory_bytes == 2**30
    assert len(load_catalogue(file).chips) == len(KNOWN.chips)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"*" = "measured here"', "", r"memory_bytes_per_s of Toy has no source.*measured here"),
        ('"*" =', '"memory" =', r"name 'memory', which is no figure"),
        ('reference = "sheet"', 'reference = "shed"', r"unknown reference.*shed.*the file has sheet"),
        ('host_link = "pcie-3"', 'host_link = "pcie-33"', r"--file: Toy: unknown link.*pcie-33"),
        ('name = "Toy"', 'name = "A100"', r"answer to one name"),
        ('"10GB/s"', '"10Gb"', r"'Gb' is no unit of bytes per second"),
        ('"10GB/s"', '"10"', r"needs a unit"),
        ('"10GB/s"', '"0GB/s"', r"memory_bytes_per_s: must be greater than or equal to 1"),
        ('"10GB/s"', "1e-300", r"chips\.0\.memory_bytes_per_s: needs a unit .*got 1e-300.*25GB/s"),
        ('"10GB/s"', "400", r"memory_bytes_per_s: needs a unit .*got 400.*or 400Gb/s in bits"),
        ('"1GiB"', "80", r"memory_bytes: needs a unit .*80GiB"),
        ('"1TFLOP/s"', "312", r"peak_flop_per_s\.fp32: needs a unit .*312TFLOP/s"),
        ('"10GB/s"', '"10e12GB/s"', r"memory_bytes_per_s: must be less than or equal to 1"),
        ('"1GiB"', '"1e999GiB"', r"memory_bytes: must be less than or equal to"),
        ('"1TFLOP/s"', "true", r"must be a number of floating-point operations per second"),
        (
            'vendor = "us"',
            'vendor = "us"\ncolour = "red"',
            r"chips\.0\.colour: extra inputs are not permitted",
        ),
        (
            'host_link = "pcie-3"',
            'host_link = "pcie-3"\nfabric = "nvlink-3"',
            r"both fabric and fabric_bytes",
        ),
        ("[[chips]]", "[chips]", r"chips: must be a valid tuple"),
        ("[references.sheet]", "[references]", r"title: must be a valid dictionary|unknown reference"),
    ],
)
def test_a_wrong_file_gets_one_clear_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CHIP
    file = tmp_path / "mine.toml"
    file.write_text(CHIP.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        load_catalogue(file)
    assert (caught.value.field or "").startswith("--file")
    assert "\n" not in str(caught.value)


def node(**changes: object) -> Node:
    values = {**KNOWN.node("4xGH200").model_dump(), **changes}
    return Node.model_validate(values)


def test_nodes_whose_parts_do_not_fit_are_refused() -> None:
    assert node(nic_chips=[[0, 1, 2, 3], [3]]).nics_of(3) == (0, 1)
    for wrong in ([[0, 1, 2]], [[0, 1, 2, 3, 4]], []):
        with pytest.raises(ValueError, match="must name every chip"):
            node(nic_chips=wrong)
    with pytest.raises(ValueError, match="must divide"):
        node(num_chips_per_host_link=3)


def test_links_of_a_cluster_join_two_of_its_groups() -> None:
    cluster = KNOWN.cluster("64xA800-200Gb").model_dump()
    groups = [*cluster["groups"], {"node": "HGX-H800", "num_nodes": 2}]
    link = {"groups": (0, 1), "link": "RoCE-100", "num_links": 4}
    kind = type(KNOWN.cluster("64xA800-200Gb"))
    made = kind.model_validate({**cluster, "groups": groups, "links": [link]})
    assert summary(made) == "8 8xA800-200Gb + 2 HGX-H800"
    for wrong in ((0, 0), (0, 2)):
        with pytest.raises(ValueError, match="must join two groups"):
            kind.model_validate({**cluster, "groups": groups, "links": [{**link, "groups": wrong}]})


LINK = "links: [{name: x, family: roce, bytes_per_s: 1GB/s, latency_s: 1us, sources: {'*': {reference: a}}}]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chips: 3", r"chips: must be a valid tuple"),
        ("chips: [3]", r"chips\.0: must be a valid dictionary"),
        ("references: 3", r"must be a valid dictionary"),
        ("references: {a: 3}\n" + LINK, r"a: must be a valid dictionary"),
        ("references: {b: words}\n" + LINK, r"unknown reference.*the file has b"),
        (LINK.replace("reference: a", "reference: [1]"), r"unknown reference"),
        (
            "references: {a: b}\n" + LINK.replace("name: x", "name: '-'"),
            r"links\.0\.name: string should match",
        ),
        ("foo: 1", r"foo: unknown key; known keys: chips, links, nodes, clusters, references"),
        (
            "nodes: [{name: x, chip: A100, num_chips: true, topology: host, network: HDR, nic_chips: [[0]]}]",
            r"nodes\.0\.num_chips: must be a valid integer",
        ),
        ("references: {a: words}\n" + LINK.replace("1us", "5"), r"links\.0\.latency_s: needs a unit"),
        (
            "references: {a: words}\n" + LINK.replace("1us", "60s"),
            r"links\.0\.latency_s: must be less than or equal to 10",
        ),
        (
            "clusters: [{name: c, groups: [{node: DGX-2, num_nodes: 10000000}]}]",
            r"num_nodes: must be less than or equal to 1000000",
        ),
        ("clusters: [{name: c, groups: [{node: DGX-99, num_nodes: 1}]}]", r"c: unknown node.*DGX-2"),
    ],
)
def test_odd_files_get_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        load_catalogue(file)


def test_words_of_a_reference_are_its_title(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("references: {a: seen in the rack}\n" + LINK)
    assert load_catalogue(file).link("x").source("latency_s").title == "seen in the rack"
