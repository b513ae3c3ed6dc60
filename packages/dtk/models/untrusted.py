"""What a model folder may not do to the process that loads it: the checks of config.json before transformers.

transformers reads names of code out of a config (an attention function `org/repo` is fetched from the hub and
run) and builds whatever sizes it promises. The checks here need the config's JSON and the headers of the
weights only. Left out: the meaning of an architecture's own fields; transformers judges those.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dtk.errors import DtkError, InputError, RunFailedError

__all__ = [
    "ATTENTION_NAMES",
    "check_attention",
    "check_config",
    "check_config_object",
    "one_line",
    "refusing",
    "weight_elements",
]

ATTENTION_NAMES = (
    "sdpa",
    "eager",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
    "flex_attention",
)
"""Attention functions that come with transformers or an installed package, never from the hub."""

_EXPERTS_NAMES = ("eager", "grouped_mm", "batched_mm")
_IMPLEMENTATIONS = {
    "attn_implementation": ATTENTION_NAMES,
    "experts_implementation": _EXPERTS_NAMES,
}
# Names of the config class's own machinery and of a file to be read in config.json's place.
_FORBIDDEN = ("attribute_map", "sub_configs", "configuration_files")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_SIZES = (
    "hidden_size",
    "n_embd",
    "d_model",
    "dim",
    "vocab_size",
    "intermediate_size",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "head_dim",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
)
_LONGEST_REASON = 400
_LARGEST_JSON_BYTES = 64 * 2**20


def check_attention(name: object) -> None:
    """Refuse an attention function that transformers would have to fetch, or does not know.

    Raises:
        InputError: If `name` is not one of `ATTENTION_NAMES`.
    """
    if name not in ATTENTION_NAMES:
        raise InputError(
            "unknown attention function",
            field="attn_implementation",
            value=one_line(str(name), 80),
            hint=f"known: {', '.join(ATTENTION_NAMES)}",
        )


def one_line(text: str, longest: int = _LONGEST_REASON) -> str:
    """Return `text` on one line, cut to `longest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


@contextmanager
def refusing(folder: Path, what: str) -> Iterator[None]:
    """Turn whatever goes wrong while `what` of a user's folder is read into one line.

    The libraries below raise nearly every type of exception for a file that is not as they expect.

    Raises:
        InputError: For every exception but those of dtk, interrupts, and want of memory.
        RunFailedError: If memory does not suffice.
    """
    try:
        yield
    except (DtkError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of the libraries written in Rust is not an Exception
        reason = one_line(str(error))
        if isinstance(error, MemoryError) or "allocate memory" in reason or "out of memory" in reason:
            raise RunFailedError(
                "not enough memory to load the model", field="model", value=str(folder)
            ) from error
        said = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise InputError(
            f"cannot load the model: {what}: {said}", field="model", value=str(folder)
        ) from error


def check_config(folder: Path, elements: int, tensors: int) -> None:
    """Check config.json before anything is built by it.

    Args:
        folder: The model's folder.
        elements: Number of weights in its files.
        tensors: Number of tensors in its files.

    Raises:
        InputError: If it is no JSON object, names code to run, or promises sizes that the files cannot hold.
    """
    file = folder / "config.json"
    if file.stat().st_size > _LARGEST_JSON_BYTES:
        raise _bad(folder, f"is larger than {_LARGEST_JSON_BYTES >> 20} MiB")
    config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise _bad(folder, "is not a JSON object")
    for key, value in _items(config):
        _check_implementation(folder, key, value)
        if key in _FORBIDDEN:
            raise _bad(folder, f"may not have {key}")
    _check_sizes(folder, config, elements, tensors)
    if isinstance(text := config.get("text_config"), dict):
        _check_sizes(folder, text, elements, tensors)


def check_config_object(folder: Path, config: Any) -> None:
    """Check the config that transformers made of the folder, which no other file may have slipped into.

    Raises:
        InputError: If it, or a config inside it, names an implementation that is not known.
    """
    for key, value in _items(vars(config)):
        _check_implementation(folder, key, value)


def weight_elements(folder: Path) -> tuple[int, int]:
    """Return the number of weights and of tensors in the safetensors files of a folder (headers only)."""
    import math

    from safetensors import safe_open

    elements = tensors = 0
    for file in sorted(folder.glob("*.safetensors")):
        with refusing(folder, file.name), safe_open(file, framework="numpy") as weights:
            for name in weights.keys():  # noqa: SIM118  not a mapping
                elements += math.prod(weights.get_slice(name).get_shape())
                tensors += 1
    return elements, tensors


def _bad(folder: Path, reason: str) -> InputError:
    return InputError(f"cannot load the model: config.json {reason}", field="model", value=str(folder))


def _items(value: object) -> Iterator[tuple[str, object]]:
    """Yield every key and value of nested mappings, lists and configs."""
    from transformers import PretrainedConfig

    if isinstance(value, PretrainedConfig):
        value = vars(value)
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key), item
            yield from _items(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _items(item)


def _check_implementation(folder: Path, key: str, value: object) -> None:
    known = _IMPLEMENTATIONS.get(key.lstrip("_").removesuffix("_internal"))
    if known is None or value is None:
        return
    for name in value.values() if isinstance(value, dict) else [value]:
        if name is not None and name not in known:
            raise InputError(
                f"config.json of the model {str(folder)!r} names code that dtk does not load",
                field="attn_implementation" if known is ATTENTION_NAMES else key,
                value=one_line(str(name), 80),
                hint=f"remove {key} from it, or set one of: {', '.join(known)}",
            )


def _check_sizes(folder: Path, config: Mapping[str, Any], elements: int, tensors: int) -> None:
    for key in (*_LAYERS, *_SIZES):
        value = config.get(key)
        if not isinstance(value, (int, float)):
            continue
        if value < 1:
            raise _bad(folder, f"has {key} {value}, which must be at least 1")
        most = tensors if key in _LAYERS else elements
        if value > most:
            raise _bad(folder, f"has {key} {value}, but its weights are {elements} in {tensors} tensors")
