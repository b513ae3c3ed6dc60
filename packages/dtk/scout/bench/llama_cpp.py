"""llama.cpp's attention on the CPU, where its Python package is installed: all that touches its libraries.

The package `llama_cpp` brings llama.cpp's shared libraries; its Python code is not imported. Their C
interface changes from time to time, so only functions over opaque pointers are used: tensors are made and
filled by ggml itself, and one `ggml_flash_attn_ext` over contiguous K/V, as llama.cpp runs it in a decode
step, is computed by ggml's CPU backend. Without a mask, since every token given is attended to.
"""

import ctypes
import importlib.util
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch import Tensor

from dtk.scout.bench.case import Case

__all__ = ["LlamaCppAttention", "LlamaCppUnavailableError", "library_folder"]

# enum ggml_type, which GGUF files hold too: these numbers stay.
_GGML_TYPES = {"fp32": 0, "fp16": 1, "bf16": 30}
_SUCCESS = 0
_ALIGNMENT_BYTES = 4096

_POINTER = ctypes.c_void_p
_BASE_FUNCTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "ggml_init": (_POINTER, "parameters"),
    "ggml_free": (None, _POINTER),
    "ggml_tensor_overhead": (ctypes.c_size_t,),
    "ggml_graph_overhead": (ctypes.c_size_t,),
    "ggml_new_tensor_4d": (_POINTER, _POINTER, ctypes.c_int, *[ctypes.c_int64] * 4),
    "ggml_get_data": (_POINTER, _POINTER),
    "ggml_flash_attn_ext": (_POINTER, *[_POINTER] * 5, *[ctypes.c_float] * 3),
    "ggml_new_graph": (_POINTER, _POINTER),
    "ggml_build_forward_expand": (None, _POINTER, _POINTER),
    "ggml_backend_graph_compute": (ctypes.c_int, _POINTER, _POINTER),
    "ggml_backend_free": (None, _POINTER),
}
_CPU_FUNCTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "ggml_backend_cpu_init": (_POINTER,),
    "ggml_backend_cpu_set_n_threads": (None, _POINTER, ctypes.c_int),
}


class LlamaCppUnavailableError(Exception):
    """llama.cpp cannot be used here; the message says why."""


class _InitParameters(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", _POINTER), ("no_alloc", ctypes.c_bool))


def library_folder() -> Path:
    """Return the folder of the libraries that the installed package brings.

    Raises:
        LlamaCppUnavailableError: If the package is not installed.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        raise LlamaCppUnavailableError("not installed")
    return Path(next(iter(spec.submodule_search_locations))) / "lib"


class LlamaCppAttention:
    """llama.cpp's attention over one case, K/V copied to where ggml wants them; a context manager.

    Args:
        case: What to attend to.
        threads: Threads of ggml's CPU backend.
        folder: Where the libraries are.

    Raises:
        LlamaCppUnavailableError: The libraries are missing, do not load or lack a function.
    """

    def __init__(self, case: Case, threads: int, folder: Path) -> None:
        self._base = _load(folder, "ggml-base", _BASE_FUNCTIONS)
        cpu = _load(folder, "ggml-cpu", _CPU_FUNCTIONS)
        with ExitStack() as cleanup:
            keys, values = case.kv.gathered_keys, case.kv.gathered_values
            query = case.query.float()[:, :, None]
            self._output = torch.empty(case.query.shape, dtype=torch.float32)
            self._context = self._new_context([query, keys, values, self._output])
            cleanup.callback(self._base.ggml_free, self._context)
            tensors = [
                self._copy(query, "fp32"),
                self._copy(keys, case.dtype),
                self._copy(values, case.dtype),
            ]
            self._result = self._base.ggml_flash_attn_ext(
                self._context, *tensors, None, query.shape[-1] ** -0.5, 0.0, 0.0
            )
            self._graph = self._base.ggml_new_graph(self._context)
            self._base.ggml_build_forward_expand(self._graph, self._result)
            self._backend = cpu.ggml_backend_cpu_init()
            cleanup.callback(self._base.ggml_backend_free, self._backend)
            cpu.ggml_backend_cpu_set_n_threads(self._backend, threads)
            self._cleanup = cleanup.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cleanup.close()

    def __call__(self) -> Tensor:
        """Compute the attention; return fp32 [batch, query heads, head size].

        Raises:
            RuntimeError: ggml reports a failure.
        """
        status = self._base.ggml_backend_graph_compute(self._backend, self._graph)
        if status != _SUCCESS:
            raise RuntimeError(f"llama.cpp's graph ended with status {status}")
        # ggml permutes its result to [batch, 1, query heads, head size].
        size = self._output.numel() * self._output.element_size()
        ctypes.memmove(self._output.data_ptr(), self._base.ggml_get_data(self._result), size)
        return self._output

    def _new_context(self, tensors: list[Tensor]) -> int:
        overhead = self._base.ggml_tensor_overhead() + _ALIGNMENT_BYTES
        data = sum(tensor.numel() * tensor.element_size() + overhead for tensor in tensors)
        parameters = _InitParameters(data + self._base.ggml_graph_overhead() + _ALIGNMENT_BYTES, None, False)
        context: int | None = self._base.ggml_init(parameters)
        if context is None:
            raise MemoryError("llama.cpp cannot allocate K/V")
        return context

    def _copy(self, tensor: Tensor, dtype: str) -> int:
        """Return a ggml tensor with the same values; ggml names dims from the last to the first."""
        copy: int = self._base.ggml_new_tensor_4d(self._context, _GGML_TYPES[dtype], *reversed(tensor.shape))
        tensor = tensor.contiguous()
        ctypes.memmove(
            self._base.ggml_get_data(copy), tensor.data_ptr(), tensor.numel() * tensor.element_size()
        )
        return copy


def _load(folder: Path, name: str, functions: Mapping[str, tuple[Any, ...]]) -> ctypes.CDLL:
    """Load a library and declare its functions, each as (result, *arguments)."""
    path = folder / f"lib{name}.so"
    try:
        library = ctypes.CDLL(str(path))
        for function, (result, *arguments) in functions.items():
            declared = getattr(library, function)
            declared.restype = result
            declared.argtypes = [_InitParameters if one == "parameters" else one for one in arguments]
    except (OSError, AttributeError) as error:
        raise LlamaCppUnavailableError(f"cannot be used: {' '.join(str(error).split())}") from error
    return library
