"""Checks of ScoutAttention that decode with a real small model on real text (Python's documentation).

The model is SmolLM2-135M-Instruct, whose weights are dequantised from 4 bits; it stands in for the paper's
models of 7 to 14 billion parameters, so that bands here are ours, at this scale.
"""

from typing import TYPE_CHECKING

from dtk.repro.checks import Observed, Plot, RunContext, Series

if TYPE_CHECKING:
    import torch

    from dtk.models import LoadedModel
    from dtk.scout import GenerationReport, ScoutConfig
    from dtk.scout.compare import DenseComparison

__all__ = [
    "churn",
    "cpu_ratio",
    "dense_agreement",
    "early_layers",
    "full_budget",
    "query_cosine",
    "recall_effect",
]

_MODEL = "smollm2-135m"
_TEXT = "python-docs"


def full_budget(context: RunContext, *, prompt_tokens: int, new_tokens: int, budget_tokens: int) -> Observed:
    """With room for the whole context, the largest difference of any logit from dense attention."""
    report = _generate(context, prompt_tokens, new_tokens, settings={"budget_tokens": budget_tokens})
    dense = _dense(report)
    return Observed(
        value={
            "token agreement": dense.token_agreement,
            "largest logit difference": dense.max_logit_difference,
        },
        basis="measured",
        details=_details(context, report)
        | {"tokens": len(report.token_ids), "mean KL (nats)": dense.mean_kl},
    )


def query_cosine(
    context: RunContext, *, prompt_tokens: int, new_tokens: int, budget_tokens: int, from_layer: int
) -> Observed:
    """Cosine of predicted and real query, mean over layers from `from_layer` on (table 1)."""
    report = _generate(context, prompt_tokens, new_tokens, settings={"budget_tokens": budget_tokens})
    by_layer = {i: cosine for i, cosine in enumerate(report.query_cosine_by_layer) if cosine is not None}
    counted = [cosine for layer, cosine in by_layer.items() if layer >= from_layer]
    plot = Plot(
        title="Cosine of predicted and real query",
        x_label="layer",
        y_label="cosine",
        series=(Series(name=_MODEL, x=tuple(by_layer), y=tuple(by_layer.values()), basis="measured"),),
    )
    return Observed(
        value=sum(counted) / len(counted),
        basis="measured",
        details=_details(context, report) | {"layers": len(counted), "smallest by layer": min(counted)},
        plots=(plot,),
    )


def early_layers(context: RunContext, *, prompt_tokens: int, new_tokens: int, budget_tokens: int) -> Observed:
    """Query cosine of layers 1 and 2 apart, and of the later ones with either layer norm."""
    runs = {
        norm: _generate(
            context,
            prompt_tokens,
            new_tokens,
            settings={"budget_tokens": budget_tokens, "dense_layers": 1, "predict_norm": norm},
            dense=False,
        )
        for norm in ("target", "source")
    }
    cosines = {
        norm: [cosine for cosine in report.query_cosine_by_layer if cosine is not None]
        for norm, report in runs.items()
    }
    later = {norm: sum(values[2:]) / len(values[2:]) for norm, values in cosines.items()}
    plot = Plot(
        title="Cosine of predicted and real query, by the layer norm used",
        x_label="layer",
        y_label="cosine",
        series=tuple(
            Series(name=f"{norm} norm", x=tuple(range(1, len(values) + 1)), y=tuple(values), basis="measured")
            for norm, values in cosines.items()
        ),
    )
    return Observed(
        value={
            "layer 1": cosines["target"][0],
            "layer 2": cosines["target"][1],
            "later layers": later["target"],
            "later layers, source norm": later["source"],
        },
        basis="measured",
        details=_details(context, runs["target"]),
        plots=(plot,),
    )


def cpu_ratio(context: RunContext, *, prompt_tokens: int, new_tokens: int, budget_tokens: int) -> Observed:
    """Share of the budget that the CPU attends to with periodic recall, mean over layers and steps."""
    report = _generate(context, prompt_tokens, new_tokens, settings={"budget_tokens": budget_tokens})
    return Observed(
        value=report.cpu_ratio,
        basis="measured",
        details=_details(context, report)
        | {
            "host shares": report.host_jobs,
            "late host shares": report.late_host_jobs,
            "attended tokens a layer and step": report.attended_tokens,
        },
        plots=(_ratio_plot({"recall every 8 steps": report}),),
    )


def churn(context: RunContext, *, prompt_tokens: int, new_tokens: int, budget_tokens: int) -> Observed:
    """Share of the selected blocks that were not selected at the step before, mean over layers and steps."""
    report = _generate(context, prompt_tokens, new_tokens, settings={"budget_tokens": budget_tokens})
    if report.churn is None:
        raise RuntimeError("no step selected any block, so there is no churn to judge")
    return Observed(value=report.churn, basis="measured", details=_details(context, report))


def dense_agreement(
    context: RunContext, *, prompt_tokens: int, new_tokens: int, budget_tokens: int
) -> Observed:
    """How often dense attention would have chosen the same token, and the divergence of the distributions."""
    report = _generate(context, prompt_tokens, new_tokens, settings={"budget_tokens": budget_tokens})
    dense = _dense(report)
    return Observed(
        value={"token agreement": dense.token_agreement, "mean KL (nats)": dense.mean_kl},
        basis="measured",
        details=_details(context, report)
        | {
            "first disagreement (token)": dense.first_disagreement,
            "largest KL (nats)": dense.max_kl,
            "device tier KV bytes": report.device_kv_bytes,
            "dense layers KV bytes": report.dense_kv_bytes,
            "host tier KV bytes": report.host_kv_bytes,
            "full KV bytes": report.full_kv_bytes,
        },
    )


def recall_effect(
    context: RunContext, *, prompt_tokens: int, new_tokens: int, budget_tokens: int
) -> Observed:
    """CPU ratio of the last quarter of the steps without recall, over the same with it (figure 6)."""
    runs = {
        "recall every 8 steps": _generate(
            context, prompt_tokens, new_tokens, settings={"budget_tokens": budget_tokens}
        ),
        "no recall": _generate(
            context,
            prompt_tokens,
            new_tokens,
            settings={"budget_tokens": budget_tokens, "recall_interval": None},
            dense=False,
        ),
    }
    late = {}
    for name, report in runs.items():
        last = report.cpu_ratio_by_step[-max(len(report.cpu_ratio_by_step) // 4, 1) :]
        late[name] = sum(last) / len(last)
    if not late["recall every 8 steps"]:
        raise RuntimeError("with recall, the CPU attended to nothing at all")
    return Observed(
        value=late["no recall"] / late["recall every 8 steps"],
        basis="measured",
        details=_details(context, runs["no recall"]) | {f"late CPU ratio, {k}": v for k, v in late.items()},
        plots=(_ratio_plot(runs),),
    )


def _ratio_plot(runs: "dict[str, GenerationReport]") -> Plot:
    return Plot(
        title="CPU ratio by decode step, mean over layers",
        x_label="decode step",
        y_label="tokens attended on the CPU / budget",
        series=tuple(
            Series(
                name=name,
                x=tuple(range(1, len(report.cpu_ratio_by_step) + 1)),
                y=tuple(report.cpu_ratio_by_step),
                basis="measured",
            )
            for name, report in runs.items()
        ),
        lines={"paper, Qwen3-8B, mean with recall": 0.082},
    )


def _details(context: RunContext, report: "GenerationReport") -> dict[str, object]:
    _, source = _prompt(context)
    return {
        "model": _MODEL,
        "text": source,
        "prompt tokens": report.prompt_tokens,
        "new tokens": len(report.token_ids),
    }


def _generate(
    context: RunContext,
    prompt_tokens: int,
    new_tokens: int,
    *,
    settings: dict[str, object],
    dense: bool = True,
) -> "GenerationReport":
    """Return one generation, made once a run for all claims that look at it."""
    from dtk.scout import ScoutConfig

    config = ScoutConfig.model_validate(settings)
    return context.shared(
        ("scout-generation", prompt_tokens, new_tokens, config, dense),
        lambda: _run(context, config, prompt_tokens, new_tokens, dense),
    )


def _run(
    context: RunContext, config: "ScoutConfig", prompt_tokens: int, new_tokens: int, dense: bool
) -> "GenerationReport":
    import torch

    from dtk.scout import generate
    from dtk.scout.generation import Progress

    loaded = _model(context)
    prompt, _ = _prompt(context)
    done = 0

    def count(_: str) -> None:
        nonlocal done
        done += 1
        context.progress("decode", done, new_tokens)

    def begin_decode() -> None:
        # One thread goes to the host's share from here on.
        torch.set_num_threads(max(context.threads - 1, 1))

    def begin_compare() -> None:
        torch.set_num_threads(context.threads)
        context.progress("dense comparison", 0, None)

    before = torch.get_num_threads()
    torch.set_num_threads(context.threads)
    context.progress(f"prefill of {prompt_tokens} tokens", 0, None)
    try:
        report = generate(
            loaded.model,
            loaded.tokenizer,
            prompt[:prompt_tokens],
            config,
            max_new_tokens=new_tokens,
            compare_dense=dense,
            progress=Progress(count, begin_decode, begin_compare),
        )
    finally:
        torch.set_num_threads(before)
    if report.interrupted:
        raise KeyboardInterrupt
    return report


def _model(context: RunContext) -> "LoadedModel":
    from dtk.models import load

    def make() -> "LoadedModel":
        context.progress(f"obtain and load {_MODEL}", 0, None)
        return load(_MODEL)

    return context.shared(("model", _MODEL), make)


def _prompt(context: RunContext) -> "tuple[torch.Tensor, str]":
    """Return the token ids of the text's first part, and what the text is."""
    import torch

    from dtk.models import load_text

    def make() -> "tuple[torch.Tensor, str]":
        text = load_text(_TEXT)
        # 4 characters a token in this text; 64k of them hold more tokens than the model's context.
        ids = _model(context).tokenizer(text.text[:65_536], verbose=False)["input_ids"]
        return torch.tensor(ids), text.source

    return context.shared(("prompt", _TEXT), make)


def _dense(report: "GenerationReport") -> "DenseComparison":
    assert report.dense is not None
    return report.dense
