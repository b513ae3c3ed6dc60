"""The Hugging Face hub: a repository's config, tokenizer and safetensors as a local folder.

The one adapter to `huggingface_hub`. Pickled weights and Python files are never fetched.
"""

import json
from collections.abc import Callable
from pathlib import Path

from dtk.errors import InputError, RunFailedError
from dtk.models.paths import shortened
from dtk.models.quiet import quiet_transformers

__all__ = ["cached_snapshot", "snapshot"]

_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]
_TIMEOUT_S = 10.0
_INDEX = "model.safetensors.index.json"


def cached_snapshot(repository: str) -> Path | None:
    """Return the local copy of a hub repository if it is whole; touches no network.

    Raises:
        InputError: If the hub cannot have a repository of that name.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, allow_patterns=_FILES, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError:
        raise InputError(
            "no such folder, and not a name that the Hugging Face hub allows",
            field="model",
            value=shortened(repository),
        ) from None
    return folder if _is_whole(folder) else None


def _is_whole(folder: Path) -> bool:
    """Return whether the config and all weight files are there (a download may have been cut short)."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / _INDEX
    if not index.is_file():
        return (folder / "model.safetensors").is_file()
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return all((folder / shard).is_file() for shard in shards)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def snapshot(repository: str, say: Callable[[str], None]) -> Path:
    """Return a local copy of a hub repository, downloading what is missing.

    A whole local copy is used as it is, without asking the hub for a newer one.

    Raises:
        InputError: If the hub has no such repository, or it holds no safetensors, or it is gated.
        RunFailedError: If the hub cannot be reached.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    cached = cached_snapshot(repository)
    if cached is not None:
        return cached
    say(f"downloading {repository} from the Hugging Face hub")
    try:
        with quiet_transformers():
            # Asked first because the download itself would wait for a silent hub without end.
            files = [
                file.rfilename for file in HfApi().model_info(repository, timeout=_TIMEOUT_S).siblings or []
            ]
            if not any(file.endswith(".safetensors") for file in files):
                raise InputError("the repository has no safetensors weights", field="model", value=repository)
            return Path(snapshot_download(repository, allow_patterns=_FILES))
    except InputError:
        raise
    except (RepositoryNotFoundError, GatedRepoError) as error:
        raise InputError(
            "the Hugging Face hub has no such repository, or your account may not read it",
            field="model",
            value=repository,
        ) from error
    except Exception as error:  # the client's transport errors are those of whichever HTTP library it uses
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise RunFailedError(
            f"not in the local hub cache, and the Hugging Face hub cannot be reached: {reason}",
            field="model",
            value=repository,
            hint="check the network and HF_HUB_OFFLINE, or give a local folder (there is none of that name)",
        ) from error
