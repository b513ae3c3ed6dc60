"""What every Triton kernel file shares: a typed `jit`, the launch, and the record of what to compile.

Triton reads TRITON_INTERPRET when it decorates a kernel, its own library functions included, so the
variable counts only if it is set before the first `import triton`. With it, kernels run on CPU tensors,
slowly, for tests; without it they need a GPU. Importing this module never asks for one.

Habits that all kernels keep: 32-bit floats or integers inside, loads and stores convert; no libdevice, no
inline assembly, no autotuning (it asks for a driver at import), 64-bit arithmetic for pool offsets; no
atomics, so that results do not depend on the order of programs; nothing that waits for the GPU, so that a
step can be captured in a CUDA graph.
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import torch
import triton

from dtk_kernels._memory import is_lazy

__all__ = [
    "KernelVariant",
    "ceil_div",
    "interpreting",
    "jit",
    "launch",
    "next_power_of_2",
    "stride_unit",
    "triton_type",
]

_TYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_VECTOR_BYTES = 16  # the widest access of a thread, and of an asynchronous copy


@overload
def jit(function: Callable[..., Any]) -> Any: ...
@overload
def jit(*, unspecialized: Sequence[str]) -> Callable[[Callable[..., Any]], Any]: ...
def jit(function: Callable[..., Any] | None = None, *, unspecialized: Sequence[str] = ()) -> Any:
    """`triton.jit` with a type, so that strict checkers accept the decorated kernels.

    Args:
        function: the kernel or device function.
        unspecialized: integer parameters whose value must not matter to the compiler. Triton compiles anew
            when an integer becomes 1 or a multiple of 16, or stops being one, which would stall a server for
            seconds when, say, the number of blocks of a sequence grows.

    Raises:
        ValueError: the function has no parameter of such a name; Triton would ignore it.
    """
    if function is not None:
        return triton.jit(function)

    def decorate(kernel: Callable[..., Any]) -> Any:
        unknown = set(unspecialized) - set(inspect.signature(kernel).parameters)
        if unknown:
            raise ValueError(f"not parameters of {kernel.__name__}: {sorted(unknown)}")
        return triton.jit(kernel, do_not_specialize=list(unspecialized))

    return decorate


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter, on CPU tensors, because of TRITON_INTERPRET."""
    return not isinstance(_probe, triton.runtime.JITFunction)


@jit
def _probe() -> None:
    """Never run: its class tells whether the variable was set when it counted."""


def ceil_div(value: int, divisor: int) -> int:
    """Smallest integer not below value / divisor."""
    return -(-value // divisor)


def next_power_of_2(value: int, *, at_least: int = 1) -> int:
    """Smallest power of two not below `value` or `at_least` (itself a power of two)."""
    return max(at_least, 1 << max(value - 1, 0).bit_length())


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: object, device: torch.device, **options: object
) -> None:
    """Run `kernel` over `grid` on `device`; a grid without a single program is no launch.

    Contraction of multiply and add is switched on here, unless the options say `enable_fp_fusion=False`, and
    nowhere else: Triton's own default changes with version 3.10 and depends on TRITON_DEFAULT_FP_FUSION until
    then.

    Raises:
        ValueError: if a tensor is lazily negated or conjugated, or the tensors live on the CPU and the
            kernels are not interpreted.
    """
    if any(isinstance(argument, torch.Tensor) and is_lazy(argument) for argument in arguments):
        raise ValueError(
            "Triton kernels read memory as it is; resolve_neg() or resolve_conj() the tensor first"
        )
    if 0 in grid:
        return
    if device.type == "cpu" and not interpreting():
        raise ValueError(
            "implementation 'triton' needs tensors on a GPU, got device cpu "
            "(for tests, set TRITON_INTERPRET=1 before triton is first imported)"
        )
    # Triton launches on the current device, which need not be the one that holds the tensors.
    guard = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with guard:
        kernel[grid](*arguments, **{"enable_fp_fusion": True, **options})


def triton_type(dtype: torch.dtype) -> str:
    """Triton's name of a floating dtype, as in `bf16`."""
    return _TYPES[dtype]


def stride_unit(itemsize: int, *strides: int) -> int:
    """The largest power of two, up to 16 bytes of elements, that divides every stride.

    Kernels take strides in this unit, a compile-time constant: so the compiler knows how wide it may load,
    also where a stride is no multiple of 16 elements, as Triton itself would want it. A stride that fits 32
    bits in this unit need not do so in elements: kernels multiply 64-bit indices with it first.
    """
    joint = math.gcd(_VECTOR_BYTES // itemsize, *strides)
    return joint if joint > 0 else 1


@dataclass(frozen=True)
class KernelVariant:
    """One specialisation of a kernel, as ahead-of-time compilation needs it.

    Attributes:
        name: operation and what is special, e.g. `sparse_decode_attention[bf16,d128]`.
        kernel: the function decorated with `jit`.
        types: Triton types, such as `*bf16` or `fp32`, of the other parameters; what is missing is i32.
        constants: values of the compile-time parameters.
        num_warps: warps in a program.
        num_stages: software pipeline depth.
        aligned: integer parameters that are multiples of 16 in practice, as pointers are (strides, sizes).
        min_capability: compute capability that it needs, 90 for 9.0; it is not compiled for older targets.
        fp_fusion: whether the compiler may contract multiply and add.
    """

    name: str
    kernel: Any
    types: Mapping[str, str]
    constants: Mapping[str, object]
    num_warps: int = 4
    num_stages: int = 2
    aligned: frozenset[str] = field(default_factory=frozenset)
    min_capability: int = 80
    fp_fusion: bool = True

    def signature(self) -> dict[str, str]:
        """Triton's signature: a type for each parameter, in the kernel's order."""
        names = list(inspect.signature(self.kernel.fn).parameters)
        unknown = (set(self.types) | set(self.constants) | self.aligned) - set(names)
        if unknown:
            raise ValueError(f"{self.name}: not parameters of {self.kernel.__name__}: {sorted(unknown)}")
        return {n: "constexpr" if n in self.constants else self.types.get(n, "i32") for n in names}

    def all_ones(self) -> "KernelVariant":
        """This variant with every integer argument 1, which Triton compiles as a constant of its own kind."""
        ones = {name: 1 for name, kind in self.signature().items() if kind == "i32"}
        constants = {**self.constants, **ones}
        return replace(self, name=f"{self.name}+ones", constants=constants, aligned=frozenset())

    def long_strides(self) -> "KernelVariant":
        """This variant with strides beyond 2**31 elements, which Triton passes in 64 bits."""
        strides = {name: "i64" for name in self.signature() if name.startswith("stride_")}
        types = {**self.types, **{name: kind for name, kind in strides.items() if name not in self.constants}}
        return replace(self, name=f"{self.name}+long", types=types)

    def aligned_parameters(self) -> list[int]:
        """Positions of the parameters that are multiples of 16."""
        signature = self.signature()
        return [
            i
            for i, (name, kind) in enumerate(signature.items())
            if kind.startswith("*") or name in self.aligned
        ]
