"""Convert a GGUF file into a Hugging Face folder: config, safetensors in fp32, tokenizer.

transformers' own GGUF loader dequantises, renames and un-permutes the weights (llama files store the rows
of q and k permuted for interleaved RoPE). Float32 on disk because it alone is lossless: a Q4_1 weight is
scale * code + minimum with 16-bit scale and minimum, and the sum of the two takes more than the 11
significant bits of float16 for half of SmolLM2's weights (8 bits of bfloat16: for nearly all).
Left out: architectures whose tokenizer is not byte-level BPE (`gguf_tokenizer`).
"""

import contextlib
import io
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dtk.errors import RunFailedError
from dtk.models.gguf_tokenizer import read_tokenizer
from dtk.models.quiet import quiet_transformers

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

__all__ = ["convert_gguf"]


def convert_gguf(gguf_file: Path, folder: Path) -> None:
    """Write the model in `gguf_file` into the existing, empty `folder` as a Hugging Face model.

    Raises:
        RunFailedError: If the file is not one that transformers and this module can read.
        OSError: If the disk refuses.
    """
    try:
        with quiet_transformers():
            _read_model(gguf_file).save_pretrained(folder)
            read_tokenizer(gguf_file).save_pretrained(folder)
    except (KeyError, ValueError, struct.error, NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's; transformers raises OSError without a number for files it cannot read
        reason = " ".join(str(error).split())
        raise RunFailedError(f"cannot convert {gguf_file.name}: {reason}") from error


def _read_model(gguf_file: Path) -> "PreTrainedModel":
    import torch
    from transformers import AutoModelForCausalLM

    # The GGUF loader draws a bar of its own that no switch of transformers turns off.
    with contextlib.redirect_stderr(io.StringIO()):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            gguf_file.parent,
            gguf_file=gguf_file.name,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
        )
    # save_pretrained refuses a model that came out of a GGUF file, so the weights move to a fresh one.
    with torch.device("meta"):
        model = type(loaded)(_plain_config(loaded.config))
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    return model


def _plain_config(config: Any) -> "PretrainedConfig":
    values = config.to_dict()
    values.pop("quantization_config", None)
    values.pop("_name_or_path", None)
    values.pop("_model_name_or_path", None)
    # GGUF stores it as a float32; its shortest decimal form is what the authors wrote (1e-05).
    values["rms_norm_eps"] = float(str(np.float32(values["rms_norm_eps"])))
    return type(config).from_dict(values)
