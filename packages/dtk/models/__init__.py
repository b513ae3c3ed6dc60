"""Small real models, tiny random ones, and real text: obtain, convert, cache, load.

folder = get("smollm2-135m")     # downloads and converts once, then returns at once
loaded = load("smollm2-135m")    # or a folder, or a hub id
"""

from dtk.models.cache import cache_dir
from dtk.models.loading import LoadedModel, load
from dtk.models.obtain import ModelInfo, available, get, path
from dtk.models.text import Text, load_text, read_prompt_file
from dtk.models.tiny import (
    TinyShape,
    byte_tokenizer,
    tiny_llama,
    tiny_mistral,
    tiny_model,
    tiny_qwen2,
    tiny_qwen3,
)

__all__ = [
    "LoadedModel",
    "ModelInfo",
    "Text",
    "TinyShape",
    "available",
    "byte_tokenizer",
    "cache_dir",
    "get",
    "load",
    "load_text",
    "path",
    "read_prompt_file",
    "tiny_llama",
    "tiny_mistral",
    "tiny_model",
    "tiny_qwen2",
    "tiny_qwen3",
]
