"""The kernel layer: operations on tensors, each with a reference, a native and a Triton implementation.

It knows nothing of dtk. Importing this module is cheap; the operation families (`dtk_kernels.attention`,
`dtk_kernels.kv`) and `dtk_kernels.workers` import torch. `dtk_kernels.status` tells what is live here.
"""

__all__: list[str] = []
