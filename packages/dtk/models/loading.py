"""Load a causal language model and its tokenizer for inference, whatever it is named by."""

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk.errors import InputError
from dtk.models.obtain import Say, get
from dtk.models.quiet import quiet_transformers

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["LoadedModel", "load"]

_log = logging.getLogger(__name__)
_DTYPES = ("float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model ready to run.

    Attributes:
        model: The Hugging Face model, in evaluation mode, on its device.
        tokenizer: Its tokenizer.
        name: What it was asked for by.
        source: The folder that it was read from.
        context_length: Longest sequence that it was made for, in tokens.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    name: str
    source: Path
    context_length: int


def load(
    name: str | Path,
    *,
    dtype: "str | torch.dtype" = "float32",
    device: "str | torch.device" = "cpu",
    attention: str = "sdpa",
    say: Say = _log.info,
) -> LoadedModel:
    """Load a model and its tokenizer, obtaining them first where they are not on this machine.

    Code that comes with a model is never run, pickled weights are never read.

    Args:
        name: A model of the registry, a folder with config.json and safetensors, or a hub id `org/name`.
        dtype: Type of the weights: float32, bfloat16 or float16.
        device: A torch device, or `auto` for a GPU if there is one.
        attention: transformers' name of the attention function.
        say: Told of each long step.

    Raises:
        InputError: For an unknown name, dtype or device, or a folder that cannot be loaded.
        RunFailedError: If a download or the disk fails.
    """
    import torch

    torch_dtype, torch_device = _checked_dtype(dtype), _checked_device(device)
    folder = get(name, say=say)
    with quiet_transformers():
        model, tokenizer = _read(folder, str(name), torch_dtype, attention)
    context_length = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(context_length, int):
        raise InputError("its config does not say max_position_embeddings", field="model", value=str(name))
    if (
        torch_device.type == "cpu"
        and torch_dtype != torch.float32
        and not _has_native_arithmetic(torch_dtype)
    ):
        _log.warning("this CPU has no %s instructions: long prompts run slower than in float32", torch_dtype)
    return LoadedModel(
        model=model.to(torch_device).eval(),
        tokenizer=tokenizer,
        name=str(name),
        source=folder,
        context_length=context_length,
    )


def _read(folder: Path, name: str, dtype: "torch.dtype", attention: str) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=attention,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot load the model: {reason}", field="model", value=name) from error
    # transformers fills weights that the files lack with random numbers and only logs it.
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise InputError(f"the files lack weights of the model: {missing}", field="model", value=name)
    if report["unexpected_keys"]:
        surplus = ", ".join(sorted(report["unexpected_keys"])[:3])
        _log.warning("%s has weights that its architecture does not use: %s", name, surplus)
    return model, tokenizer


def _checked_dtype(dtype: "str | torch.dtype") -> "torch.dtype":
    import torch

    text = str(dtype).removeprefix("torch.")
    if text not in _DTYPES:
        raise InputError("unknown dtype", field="--dtype", value=text, hint=f"known: {', '.join(_DTYPES)}")
    result: torch.dtype = getattr(torch, text)
    return result


def _checked_device(device: "str | torch.device") -> "torch.device":
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in {"cpu", "cuda"}:
        hint = "auto, cpu, cuda or cuda:N"
        raise InputError("unknown device", field="--device", value=str(device), hint=hint)
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise InputError(f"no such GPU, {found} found", field="--device", value=str(device))
    return chosen


def _has_native_arithmetic(dtype: "torch.dtype") -> bool:
    import torch

    query = getattr(torch.cpu, "get_capabilities", None)  # new in torch: an older one says nothing, nor do we
    flags = query() if query is not None else {}
    if flags.get("architecture") != "x86_64":
        return True
    names = ("avx512_bf16", "amx_bf16") if dtype == torch.bfloat16 else ("avx512_fp16", "amx_fp16")
    return any(flags.get(name, False) for name in names)
