"""Load a causal language model and its tokenizer for inference, whatever it is named by."""

import copy
import dataclasses
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtk.errors import InputError, RunFailedError
from dtk.models.obtain import Say, get
from dtk.models.quiet import quiet_transformers
from dtk.models.registry import registry
from dtk.models.untrusted import (
    check_attention,
    check_config,
    check_config_object,
    one_line,
    refusing,
    weight_elements,
)

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
        attention: Name of the attention function, one of `untrusted.ATTENTION_NAMES`.
        say: Told of each long step.

    Raises:
        InputError: For an unknown name, dtype, device or attention, or a folder that cannot be loaded.
        RunFailedError: If a download, the disk or a model in dtk's own cache fails, or memory runs out.
    """
    import torch

    torch_dtype, torch_device = _checked_dtype(dtype), _checked_device(device)
    check_attention(attention)
    folder = get(name, say=say)
    try:
        with quiet_transformers():
            model, tokenizer, context_length = _read(folder, torch_dtype, attention)
    except InputError as error:
        if str(name) not in registry() or error.field != "model":
            raise
        # The user gave no such file: the sizes are right and what is in them is not.
        raise RunFailedError(
            f"the copy in the cache is damaged: {error.message}",
            field="model",
            value=str(name),
            hint=f"delete the folder {folder}, it is made anew at the next use",
        ) from error
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


def _read(folder: Path, dtype: "torch.dtype", attention: str) -> tuple[Any, Any, int]:
    """Return the model, the tokenizer and the context length of a folder whose files nobody vouches for."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's, about odd sizes: the checks say it better
        config = _read_config(folder, attention, options)
        with refusing(folder, "the tokenizer's files"):
            tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            _check_tokenizer(folder, tokenizer)
        with refusing(folder, "config.json and the safetensors files"):
            with _dispatching(attention):
                model, report = AutoModelForCausalLM.from_pretrained(
                    folder,
                    config=config,
                    dtype=dtype,
                    attn_implementation=attention,
                    use_safetensors=True,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,  # _check_report refuses them and says which
                    **options,
                )
            _check_report(folder, report)
            _check_vocabulary(folder, tokenizer, model.get_input_embeddings().weight.shape[0])
    return model, tokenizer, config.get_text_config().max_position_embeddings


@contextmanager
def _dispatching(attention: str) -> Iterator[None]:
    """Blame the attention function for what the model says about one that needs a package or a GPU."""
    try:
        yield
    except (ImportError, ValueError) as error:
        if attention in {"sdpa", "eager"}:
            raise
        raise InputError(
            f"cannot be used here: {one_line(str(error))}", field="attn_implementation", value=attention
        ) from error


def _read_config(folder: Path, attention: str, options: dict[str, Any]) -> Any:
    """Return the checked config, its attention function set in every part of it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with refusing(folder, "config.json"):
        elements, tensors = weight_elements(folder)
        check_config(folder, elements, tensors)
        config = AutoConfig.from_pretrained(folder, **options)
        check_config_object(folder, config)
        config._attn_implementation = attention
        context_length = getattr(config.get_text_config(), "max_position_embeddings", None)
        if not isinstance(context_length, int) or isinstance(context_length, bool) or context_length < 1:
            raise InputError(
                "its config does not say max_position_embeddings", field="model", value=str(folder)
            )
        with torch.device("meta"):
            # Whether `attention` is installed is no matter of the config; every architecture has eager.
            model = AutoModelForCausalLM.from_config(
                copy.deepcopy(config), attn_implementation="eager", trust_remote_code=False
            )
        promised = sum(parameter.numel() for parameter in model.parameters())
        # Missing weights are reported by name later; quantised ones are packed, several in an element.
        if promised > 2 * elements and getattr(config, "quantization_config", None) is None:
            raise InputError(
                f"cannot load the model: config.json asks for {promised} weights, its files hold {elements}",
                field="model",
                value=str(folder),
            )
    return config


def _check_tokenizer(folder: Path, tokenizer: Any) -> None:
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise InputError(
            f"its tokenizer {type(tokenizer).__name__} has no fast form",
            field="model",
            value=str(folder),
            hint="save it with a tokenizer.json",
        )


def _check_vocabulary(folder: Path, tokenizer: Any, vocabulary: int) -> None:
    # Special tokens are left out: several tokenizers add some that their models never had (Qwen2's does).
    special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    ordinary = ((token, index) for token, index in tokenizer.get_vocab().items() if index not in special)
    token, largest = max(ordinary, key=lambda item: item[1], default=("", -1))
    if largest >= vocabulary:
        raise InputError(
            f"its tokenizer has token {one_line(str(token), 40)!r} with id {largest}, "
            f"its model knows {vocabulary} tokens",
            field="model",
            value=str(folder),
            hint="take the tokenizer that belongs to the model, or resize the model's embeddings",
        )


def _check_report(folder: Path, report: dict[str, Any]) -> None:
    """Refuse what transformers only logs: it fills weights that the files lack with random numbers."""
    if report.get("mismatched_keys"):
        name, found, wanted = min(report["mismatched_keys"])
        raise InputError(
            f"cannot load the model: {name} is {list(found)} in the files, {list(wanted)} by config.json",
            field="model",
            value=str(folder),
        )
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise InputError(f"the files lack weights of the model: {missing}", field="model", value=str(folder))
    if report["unexpected_keys"]:
        surplus = ", ".join(sorted(report["unexpected_keys"])[:3])
        _log.warning("%s has weights that its architecture does not use: %s", folder, surplus)


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
