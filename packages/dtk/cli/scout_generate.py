"""What `dtk scout generate` does once its options are known; imports torch, so only the command body does."""

import logging
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dtk.cli.out_folder import write_json
from dtk.cli.output import Output
from dtk.errors import InputError, RunFailedError
from dtk.models import LoadedModel, load
from dtk.repro.environment import available_threads, capture_environment
from dtk.scout.config import ScoutConfig
from dtk.scout.decode import Sampling
from dtk.scout.generation import GenerationReport, Progress, check_request, generate

__all__ = ["Request", "run", "save", "show"]


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """One `dtk scout generate`, all options resolved."""

    model: str
    prompt: str
    chat: bool
    max_prompt_tokens: int | None
    max_new_tokens: int
    temperature: float
    dtype: str
    attn_implementation: str
    compare_dense: bool
    settings: ScoutConfig
    seed: int
    threads: int | None
    host_threads: int
    device: str


def run(request: Request, output: Output) -> tuple[LoadedModel, GenerationReport]:
    """Load the model, generate, and return both; text goes to the output as it comes."""
    check_request(request.max_new_tokens, Sampling(request.temperature, request.seed), request.compare_dense)
    total, decoding = _threads(request)
    torch.set_num_threads(total)
    output.say(f"loading {request.model}")
    loaded = load(
        request.model,
        dtype=request.dtype,
        device=request.device,
        attention=request.attn_implementation,
        say=output.say,
    )
    prompt_ids = _encode(request, loaded)
    output.say(
        f"prefill of {len(prompt_ids)} tokens on {total} threads, then up to {request.max_new_tokens} new "
        f"ones on {decoding} + {request.host_threads} (the host's share)"
    )

    def comparing_begins() -> None:
        torch.set_num_threads(total)
        output.stream("\n")
        output.say("comparing with dense attention")

    with ExitStack() as prefill:
        prefill.enter_context(output.progress()).add_task(f"prefill of {len(prompt_ids)} tokens", total=None)

        def decoding_begins() -> None:
            # The device's and the host's share run at once: together they stay within the threads asked for.
            torch.set_num_threads(decoding)
            prefill.close()

        report = generate(
            loaded.model,
            loaded.tokenizer,
            prompt_ids,
            request.settings,
            max_new_tokens=request.max_new_tokens,
            sampling=Sampling(request.temperature, request.seed),
            host_threads=request.host_threads,
            compare_dense=request.compare_dense,
            progress=Progress(output.stream, decoding_begins, comparing_begins),
        )
    if not request.compare_dense or report.interrupted:
        output.stream("\n")
    _warn_if_all_fits(request, report)
    return loaded, report


def _warn_if_all_fits(request: Request, report: GenerationReport) -> None:
    tokens = report.prompt_tokens + len(report.token_ids)
    if tokens <= request.settings.budget_tokens:
        _log.warning(
            "the budget of %d tokens holds the whole context of %d: nothing had to be attended on the host; "
            "a smaller --budget-tokens offloads some of it",
            request.settings.budget_tokens,
            tokens,
        )


def _threads(request: Request) -> tuple[int, int]:
    """Return the threads in all, and those left to torch while the host's share runs beside it."""
    total = request.threads or available_threads()
    if request.host_threads >= max(total, 2):
        raise InputError(
            f"leaves none of {total} threads for the device's share",
            field="--host-threads",
            value=request.host_threads,
        )
    return total, max(total - request.host_threads, 1)


def _encode(request: Request, loaded: LoadedModel) -> torch.Tensor:
    tokenizer: Any = loaded.tokenizer
    if request.chat and request.max_prompt_tokens is not None:
        raise InputError(
            "would cut off the end of the chat template",
            field="--max-prompt-tokens",
            value=request.max_prompt_tokens,
            hint="shorten the prompt, or leave out --chat",
        )
    if request.chat:
        if not tokenizer.chat_template:
            raise InputError("this model has no chat template", field="--chat", value=request.model)
        messages = [{"role": "user", "content": request.prompt}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)[
            "input_ids"
        ]
    else:
        # Whether the prompt fits the context is for generate() to say; the tokenizer would only warn.
        ids = tokenizer(request.prompt, verbose=False)["input_ids"]
    return torch.tensor(ids[: request.max_prompt_tokens], dtype=torch.int64)


def save(folder: Path, data: dict[str, Any], report: GenerationReport, request: Request) -> None:
    """Write the result, the resolved request and the plots into `folder`.

    Raises:
        RunFailedError: If the folder cannot be written.
    """
    from dtk.scout.plots import plot_generation

    total, decoding = _threads(request)
    resolved = asdict(request) | {
        "settings": request.settings.model_dump(mode="json"),
        "threads": total,
        "threads_while_decoding": decoding,
        "device": data["device"],
        "environment": capture_environment(),
    }
    try:
        write_json(folder, "result.json", data)
        write_json(folder, "request.json", resolved)
        plot_generation(report, folder)
    except OSError as error:
        raise RunFailedError(f"cannot write: {error.strerror}", field="--out", value=str(folder)) from error


def show(console: Console, report: GenerationReport, loaded: LoadedModel, settings: ScoutConfig) -> None:
    """Print the report as a table for people."""
    device = loaded.model.device.type
    table = Table(
        title=f"ScoutAttention on {loaded.name}, device: {device} (figures are measured here)",
        title_justify="left",
    )
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("note", style="dim")
    for row in _rows(report, settings, device):
        table.add_row(*row)
    console.print(table)


def _rows(report: GenerationReport, settings: ScoutConfig, device: str) -> list[tuple[str, str, str]]:
    speed = "on a CPU; says nothing about a GPU" if device == "cpu" else ""
    full, on_device = report.full_kv_bytes, report.device_kv_bytes + report.dense_kv_bytes
    cosines = [cosine for cosine in report.query_cosine_by_layer if cosine is not None]
    rows = [
        ("tokens", f"{report.prompt_tokens} + {len(report.token_ids)}", "prompt + new"),
        ("time to first token", _seconds(report.time_to_first_token_s), "dense prefill"),
        ("decode speed", _number(report.tokens_per_s, "{:.2f} tokens/s"), speed),
        ("KV on device", _mib(on_device), f"{on_device / full:.0%} of all K/V (analytic)"),
        ("  device tier", _mib(report.device_kv_bytes), f"budget of {settings.budget_tokens} tokens + tail"),
        ("  dense layers", _mib(report.dense_kv_bytes), "not offloaded"),
        ("digests on device", _mib(report.digest_bytes), "besides the K/V"),
        ("KV in host memory", _mib(report.host_kv_bytes), "every closed block, and room to grow"),
        ("CPU ratio", f"{report.cpu_ratio:.1%}", "tokens attended on the host / budget"),
        ("churn", _number(report.churn, "{:.1%}"), "of the selected blocks, from step to step"),
        (
            "query cosine",
            _number(min(cosines, default=None), "{:.3f} at least"),
            "predicted to real, by layer",
        ),
        (
            "host shares",
            f"{report.host_jobs}",
            f"{report.late_host_jobs} late, {report.host_wait_s:.2f} s waited",
        ),
        ("blocks recalled", f"{report.recalled_blocks:g}", ""),
    ]
    if report.dense is not None:
        first = report.dense.first_disagreement
        where = "all of them" if first is None else f"first differs: token {first}"
        rows.append(("tokens as dense attention", f"{report.dense.token_agreement:.1%}", where))
        rows.append(
            (
                "KL from dense attention",
                f"{report.dense.mean_kl:.2e} nats",
                f"at most {report.dense.max_kl:.2e}",
            )
        )
    return rows


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.0f} KiB"


def _seconds(value: float | None) -> str:
    return _number(value, "{:.2f} s")


def _number(value: float | None, template: str) -> str:
    return "-" if value is None else template.format(value)
