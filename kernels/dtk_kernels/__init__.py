"""The kernel layer: operations on tensors, each with a reference, a native and a Triton implementation.

It knows nothing of dtk. Importing this module is cheap, as is `dtk_kernels.formats`; the operation families
(`dtk_kernels.attention`, `dtk_kernels.gemm`, `dtk_kernels.kv`, `dtk_kernels.quant`) and `dtk_kernels.workers`
import torch. `dtk_kernels.status` tells what is live here, and `python -m dtk_kernels.aot` compiles the
Triton kernels for GPUs that need not be there.
"""

__all__: list[str] = []
