import json
from pathlib import Path

import pytest

from dtk.cli.main import run
from dtk.hardware import machine


def test_list_for_machines_and_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardware", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["basis"] == "published"
    kinds = {entry["name"]: entry["kind"] for entry in document["data"]["hardware"]}
    assert (kinds["A800-SXM-80GB"], kinds["PCIe-5"], kinds["DGX-2"]) == ("chip", "link", "node")
    assert run(["hardware", "list", "--kind", "link"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + list(kinds.values()).count("link")


def test_show_gives_base_units_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardware", "show", "h800", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    data = document["data"]
    assert document["basis"] == "published"
    assert (data["kind"], data["name"], data["memory_bytes"]) == ("chip", "H800-SXM-80GB", 80 * 2**30)
    assert data["fabric_bytes_per_s"] == 200e9
    figures = {figure["figure"]: figure for figure in data["figures"]}
    assert figures["peak_flop_per_s.bf16"]["value"] == 989.4e12
    assert figures["fabric_bytes_per_s"]["source"]["url"] == "https://arxiv.org/abs/2505.09343"


def test_what_is_guessed_or_a_users_own_is_not_called_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "links: [{name: mine, family: roce, bytes_per_s: 25Gb/s, latency_s: 10us, sources: {'*': seen here}}]"
    )
    for name in ("NVLink-3", "mine"):
        assert run(["hardware", "show", name, "--file", str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["basis"] is None


def test_show_for_people_marks_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardware", "show", "NVLink-3"]) == 0
    out = capsys.readouterr().out
    assert "bytes_per_s: 25GB/s\n" in out
    assert "latency_s: 3.33us (estimate)\n" in out
    assert "https://en.wikipedia.org/wiki/NVLink\n" in out
    assert run(["hardware", "show", "8xa800-800gb"]) == 0
    assert "nic_chips: (0, 1), (2, 3), (4, 5), (6, 7)\n" in capsys.readouterr().out


def test_an_unknown_chip_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hardware", "show", "A8000"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "unknown hardware" in captured.err
    assert "A800-SXM-80GB" in captured.err


def test_a_users_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "links:\n- {name: My link, family: roce, bytes_per_s: 25Gb/s, latency_s: 10us,"
        " sources: {'*': measured here}}\n"
    )
    assert run(["hardware", "show", "my-link", "--file", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["bytes_per_s"] == 25e9 / 8
    assert run(["hardware", "list", "--file", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["basis"] is None
    file.write_text(file.read_text().replace("25Gb/s", "25Gb"))
    assert run(["hardware", "list", "--file", str(file)]) == 2
    error = capsys.readouterr().err
    assert "--file: links.0.bytes_per_s" in error
    assert "25Gb/s" in error or "400Gb/s" in error


def test_measure_reports_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "read_buffer_bytes", lambda: 2**16)
    monkeypatch.setattr(machine, "_STREAM_BYTES", 2**16)
    assert run(["hardware", "measure", "--rounds", "1", "--threads", "1", "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["basis"], document["data"]["threads"]) == ("measured", 1)
    figures = {figure["name"]: figure for figure in document["data"]["figures"]}
    assert figures["gemm fp32 1024"]["unit"] == "flop_per_s"
    assert run(["hardware", "measure", "--rounds", "1", "--threads", "1"]) == 0
    captured = capsys.readouterr()
    assert "loopback round trip" in captured.out
    assert "measuring" in captured.err


def test_measure_writes_hardware_that_show_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "read_buffer_bytes", lambda: 2**16)
    monkeypatch.setattr(machine, "_STREAM_BYTES", 2**16)
    monkeypatch.setattr(machine, "GEMM_SIZES", (8,))
    file = tmp_path / "mine.toml"
    command = ["hardware", "measure", "--rounds", "1", "--threads", "1", "--write", str(file)]
    assert run([*command, "--name", "My desk", "--json"]) == 0
    captured = capsys.readouterr()
    assert "My desk" in captured.err
    figures = {one["name"]: one["median"] for one in json.loads(captured.out)["data"]["figures"]}
    assert run(["hardware", "show", "my-desk", "--file", str(file), "--json"]) == 0
    peaks = json.loads(capsys.readouterr().out)["data"]["peak_flop_per_s"]
    fastest = max(figures[name] for name in figures if name.startswith("gemm bf16"))
    assert peaks["bf16"] == pytest.approx(fastest, rel=1e-4)
    assert run(command) == 2
    assert "is there already" in capsys.readouterr().err
