"""The `dtk scout` command group: decode with the KV cache offloaded to host memory."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtk.cli import scout_bench
from dtk.cli.interrupts import interrupts_held_back
from dtk.cli.options import (
    ConfigOption,
    DeviceOption,
    JsonOption,
    OutOption,
    QuietOption,
    SeedOption,
    SetOption,
    ThreadsOption,
    VerboseOption,
)
from dtk.cli.output import EXIT_INTERRUPTED, Output
from dtk.errors import InputError, RunFailedError

if TYPE_CHECKING:
    from dtk.models import LoadedModel
    from dtk.scout import GenerationReport, ScoutConfig

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="ScoutAttention: decode with the KV cache offloaded to host memory."
)

app.add_typer(scout_bench.app, name="bench")

_CACHE = "KV cache"


class Dtype(StrEnum):
    """Number formats that a model can run in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


@app.command()
def generate(
    model: Annotated[
        str, typer.Option(help="Model name (see `dtk models list`), folder or Hugging Face hub id.")
    ],
    prompt_file: Annotated[
        Path | None, typer.Option("--prompt-file", help="Text file (UTF-8) with the prompt.")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="The prompt itself.")] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Wrap the prompt in the model's chat template.")
    ] = False,
    max_prompt_tokens: Annotated[
        int | None, typer.Option(min=1, help="Keep only the first so many tokens of the prompt.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Generate at most so many tokens.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 decodes greedily; above 0 samples.")] = 0.0,
    dtype: Annotated[Dtype, typer.Option(help="Number format of weights and K/V.")] = Dtype.FLOAT32,
    compare_dense: Annotated[
        bool, typer.Option("--compare-dense", help="Compare every token with dense attention afterwards.")
    ] = False,
    budget_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens of K/V that a layer keeps on the device. (default: 2048)", rich_help_panel=_CACHE
        ),
    ] = None,
    block_size: Annotated[
        int | None, typer.Option(help="Tokens in a KV block. (default: 32)", rich_help_panel=_CACHE)
    ] = None,
    dense_layers: Annotated[
        int | None,
        typer.Option(
            help="First layers that keep all K/V on the device. (default: 3)", rich_help_panel=_CACHE
        ),
    ] = None,
    recall_interval: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS|never", help="Decode steps between recalls. (default: 8)", rich_help_panel=_CACHE
        ),
    ] = None,
    host_threads: Annotated[
        int,
        typer.Option(
            min=1, max=1024, help="Of all threads, those for the host's share.", rich_help_panel=_CACHE
        ),
    ] = 1,
    attn_implementation: Annotated[
        str,
        typer.Option(
            help="Attention function to load the model with; sdpa and eager can be replaced.",
            rich_help_panel=_CACHE,
        ),
    ] = "sdpa",
    config: ConfigOption = None,
    assignments: SetOption = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    device: DeviceOption = "auto",
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Generate text with the KV cache offloaded, and report what it kept where and what it cost.

    The text streams as it comes (to stderr under --json). Ctrl-C ends the text early; the report still comes.
    """
    output = Output("scout generate", as_json=as_json, quiet=quiet, verbose=verbose)
    flags = {
        "budget_tokens": budget_tokens,
        "block_size": block_size,
        "dense_layers": dense_layers,
        "recall_interval": recall_interval,
    }
    settings = _settings(config, assignments, flags)
    text = _prompt_text(prompt, prompt_file)
    with interrupts_held_back():
        from dtk.cli import scout_generate
    from dtk.cli.out_folder import prepare_folder

    request = scout_generate.Request(
        model=model,
        prompt=text,
        chat=chat,
        max_prompt_tokens=max_prompt_tokens,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        dtype=dtype.value,
        attn_implementation=attn_implementation,
        compare_dense=compare_dense,
        settings=settings,
        seed=seed,
        threads=threads,
        host_threads=host_threads,
        device=device,
    )
    if out is not None:
        prepare_folder(out, settings, "scout generate")
    loaded, report = scout_generate.run(request, output)
    data = _data(loaded, report, settings)
    status, code = ("interrupted", EXIT_INTERRUPTED) if report.interrupted else ("ok", 0)
    if out is not None:
        try:
            scout_generate.save(out, data, report, request)
            output.say(f"results in {out}")
        except RunFailedError as error:
            # The disk filled up meanwhile: what was generated still goes to stdout.
            output.stderr.print(f"dtk: {error}", markup=False, soft_wrap=True)
            output.warnings.append(str(error))
            status, code = "failed", error.exit_code
    output.finish(
        data,
        basis="measured",
        status=status,
        show=lambda console: scout_generate.show(console, report, loaded, settings),
    )
    raise typer.Exit(code)


def _settings(config: Path | None, assignments: list[str] | None, flags: dict[str, Any]) -> "ScoutConfig":
    from dtk.configuration import load_config
    from dtk.scout.config import ScoutConfig

    return load_config(ScoutConfig, file=config, assignments=assignments or (), flags=flags)


def _prompt_text(prompt: str | None, prompt_file: Path | None) -> str:
    from dtk.models.text import read_prompt_file

    if (prompt is None) == (prompt_file is None):
        raise InputError("give exactly one of --prompt and --prompt-file", field="--prompt-file")
    if prompt_file is not None:
        return read_prompt_file(prompt_file)
    if not (prompt or "").strip():
        raise InputError("the prompt is empty", field="--prompt", value=prompt)
    text = prompt or ""
    if not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError("is not UTF-8", field="--prompt", value=ascii(text))
    return text


def _data(loaded: "LoadedModel", report: "GenerationReport", settings: "ScoutConfig") -> dict[str, Any]:
    data = asdict(report)
    dense = data.pop("dense")
    data["new_tokens"] = len(report.token_ids)
    data["model"] = loaded.name
    data["device"] = str(loaded.model.device)
    # Everything else is measured, as the document's basis says.
    data["basis_of"] = {"full_kv_bytes": "analytic"}
    data["config"] = settings.model_dump(mode="json")
    for key, value in (dense or {}).items():
        data[f"dense_{key}"] = value
    return data
