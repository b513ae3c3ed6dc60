"""`dtk scout generate` on a tiny random model: the JSON contract, the table, --out, and bad input."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtk.cli.main import run
from tests.cli.terminal import plain

TINY = [
    "--model",
    "tiny-llama",
    "--budget-tokens",
    "64",
    "--block-size",
    "16",
    "--dense-layers",
    "1",
    "--threads",
    "1",
]
TEXT = "All happy families are alike; each unhappy family is unhappy in its own way. " * 4


@pytest.fixture(autouse=True)
def _restore_threads() -> Iterator[None]:
    """The command sets torch's threads, as it may: its process is its own. Here it is ours."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def prompt_file(tmp_path: Path) -> Path:
    file = tmp_path / "prompt.txt"
    file.write_text(TEXT)
    return file


def generate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["scout", "generate", *TINY, "--max-new-tokens", "12", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_has_the_names_that_scripts_rely_on(
    prompt_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = generate(capsys, "--prompt-file", str(prompt_file), "--json", "--compare-dense")
    document = json.loads(out)
    data: dict[str, Any] = document["data"]
    assert code == 0
    assert (document["command"], document["status"], document["basis"]) == (
        "scout generate",
        "ok",
        "measured",
    )
    assert isinstance(data["text"], str)
    assert 1 <= data["new_tokens"] <= 12
    assert data["new_tokens"] == len(data["token_ids"])
    assert data["prompt_tokens"] == len(TEXT)
    assert data["tokens_per_s"] > 0
    # One of the two layers is offloaded: budget and tail blocks of 2 KV heads of size 16 in fp32.
    assert data["device_kv_bytes"] == (64 + 16) * 2 * 2 * 16 * 4
    assert data["host_kv_bytes"] > 0
    assert 0 <= data["cpu_ratio"] <= 1
    assert 0 <= data["churn"] <= 1
    assert data["query_cosine_by_layer"][0] is None
    assert -1 <= data["query_cosine_by_layer"][1] <= 1
    assert 0 <= data["dense_token_agreement"] <= 1
    assert data["dense_mean_kl"] >= 0
    assert data["config"]["budget_tokens"] == 64
    # Under --json the text streams to stderr, and stdout holds the one object only.
    assert data["text"].strip()[:3] in err


def test_every_key_of_the_result_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = generate(capsys, "--prompt", TEXT, "--json", "--compare-dense")
    page = Path(__file__).parents[2].joinpath("docs", "howto", "json.md").read_text()
    assert [key for key in json.loads(out)["data"] if f"`{key}`" not in page] == []


def test_text_streams_to_stdout_and_a_table_follows(
    prompt_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = generate(capsys, "--prompt-file", str(prompt_file))
    assert code == 0
    for word in (
        "device: cpu",
        "says nothing about a GPU",
        "CPU ratio",
        "KV on device",
        "KV in host memory",
        "churn",
        "query cosine",
        "measured",
    ):
        assert word in plain(out)
    assert "dense attention" not in out
    assert "loading tiny-llama" in err


def test_quiet_says_nothing_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = generate(capsys, "--prompt", TEXT, "--quiet", "--json")
    assert code == 0
    assert err == ""


def test_out_keeps_result_request_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "folder"
    code, out, _ = generate(capsys, "--prompt", TEXT, "--json", "--out", str(folder), "--seed", "5")
    assert code == 0
    assert json.loads((folder / "result.json").read_text()) == json.loads(out)["data"]
    request = json.loads((folder / "request.json").read_text())
    assert (request["seed"], request["settings"]["block_size"]) == (5, 16)
    assert (request["threads"], request["device"]) == (1, "cpu")
    assert request["environment"]["packages"]["torch"]
    assert (folder / "generation.svg").read_text().startswith("<?xml")
    assert (folder / "generation.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = generate(capsys, "--prompt", TEXT, "--out", str(folder))
    assert code == 2
    assert "--out: holds the results of an earlier run" in err
    arguments = ["--config", str(folder / "config.yaml"), "--prompt", TEXT, "--json"]
    code, out, _ = generate(capsys, *arguments)
    assert json.loads(out)["data"]["config"] == request["settings"]
    assert sorted(x.name for x in folder.iterdir()) == [
        "config.yaml",
        "generation.png",
        "generation.svg",
        "request.json",
        "result.json",
    ]


def test_recall_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--recall-interval", "never"], ["--set", "recall_interval=never"]):
        code, out, _ = generate(capsys, "--prompt", TEXT, "--json", *arguments)
        data = json.loads(out)["data"]
        assert (code, data["config"]["recall_interval"], data["recalled_blocks"]) == (0, None, 0)


def test_settings_come_from_file_then_set_then_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scout.toml"
    file.write_text('predict_norm = "source"\nsink_blocks = 2\nblock_size = 8\n')
    arguments = ["--config", str(file), "--set", "sink_blocks=0", "--prompt", TEXT, "--json"]
    _, out, _ = generate(capsys, *arguments)
    config = json.loads(out)["data"]["config"]
    assert (config["predict_norm"], config["sink_blocks"], config["block_size"]) == ("source", 0, 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "no-such-model"], "model: unknown model (got 'no-such-model')"),
        (["--budget-tokens", "16"], "budget_tokens=16 is below the forced blocks"),
        (["--budget-tokens", "50"], "budget_tokens=50 is not a multiple of block_size=16"),
        (["--block-size", "0"], "block_size: must be greater than or equal to 1 (got 0)"),
        (["--recall-interval", "0"], "recall_interval: must be greater than or equal to 1 (got '0')"),
        (["--dense-layers", "2"], "dense_layers: leaves no layer to offload of 2 layers"),
        (["--max-new-tokens", "4000"], "exceed the model's context of 4096 (got 4000)"),
        (["--max-new-tokens", "0"], "max_new_tokens: must be at least 1 (got 0)"),
        (
            ["--attn-implementation", "flex_attention"],
            "attn_implementation: cannot replace this attention function",
        ),
        (["--temperature", "-1"], "temperature: must be a number from 0 up (got -1.0)"),
        (["--temperature", "1", "--compare-dense"], "temperature: cannot be compared with dense attention"),
        (["--temperature", "nan"], "temperature: must be a number from 0 up (got nan)"),
        (["--recall-interval", "often"], "recall_interval: "),
        (["--host-threads", "2", "--threads", "2"], "--host-threads: leaves none of 2 threads"),
        (["--chat", "--max-prompt-tokens", "9"], "--max-prompt-tokens: would cut off the end"),
        (["--chat"], "--chat: this model has no chat template (got 'tiny-llama')"),
        (["--set", "budget=3"], "budget: unknown key"),
        (["--set", "nonsense"], "--set: must be KEY=VALUE (got 'nonsense')"),
        (["--host-threads", "0"], "--host-threads: must be greater than or equal to 1"),
        (["--host-threads", "99999"], "--host-threads: must be less than or equal to 1024"),
        (["--dtype", "int3"], "--dtype: "),
        (["--device", "cuda:7"], "--device: no such GPU"),
        (["--device", "moon"], "--device: "),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = generate(capsys, "--prompt", TEXT, "--quiet", *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("dtk: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"caf\xe9", "UTF-8"),
    ],
)
def test_bad_prompt_files(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompt.txt"
    if content is not None:
        file.write_bytes(content)
    code, _, err = generate(capsys, "--prompt-file", str(file), "--quiet")
    assert code == 2
    assert message in err
    assert str(file) in err
    assert err.count("\n") == 1


def test_needs_exactly_one_prompt(prompt_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--prompt", "x", "--prompt-file", str(prompt_file)]
    for arguments in ([], both, ["--prompt", " "], ["--prompt", "caf\udce9"]):
        code, _, err = generate(capsys, *arguments)
        assert code == 2
        assert "--prompt" in err


def test_unwritable_out_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for folder in (blocked, blocked / "below", tmp_path / ("x" * 300)):
        code, out, err = generate(capsys, "--prompt", TEXT, "--out", str(folder))
        assert (code, out) == (2, "")
        assert "--out: cannot write there" in err
        assert "loading" not in err


def test_a_disk_that_fills_up_does_not_cost_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dtk.scout.plots.plot_generation", fail)
    code, out, err = generate(capsys, "--prompt", TEXT, "--out", str(tmp_path), "--json", "--quiet")
    document = json.loads(out)
    assert (code, document["status"]) == (4, "failed")
    assert document["data"]["new_tokens"] > 0
    assert "No space left on device" in document["warnings"][0]
    assert "No space left on device" in err


def test_budget_far_above_any_context_is_no_burden(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = generate(capsys, "--prompt", TEXT, "--json", "--budget-tokens", str(16 * 10**14))
    assert code == 0
    document = json.loads(out)
    assert document["data"]["device_kv_bytes"] < 2**20
    assert "holds the whole context" in document["warnings"][0]
    assert "holds the whole context" in plain(err)


def test_ctrl_c_reports_what_was_generated() -> None:
    command = [sys.executable, "-m", "dtk", "scout", "generate", *TINY, "--max-new-tokens", "3500"]
    process = subprocess.Popen(
        [*command, "--prompt", TEXT, "--json", "--set", "block_size=16"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "prefill" not in (line := process.stderr.readline()):
        assert line, "ended before the prefill"
    process.stderr.read(200)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    document = json.loads(out)
    assert document["status"] == "interrupted"
    assert document["data"]["interrupted"]
    assert document["data"]["new_tokens"] > 0
