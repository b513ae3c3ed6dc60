"""The kernel layer: operations on tensors, each with a reference, a native and a Triton implementation.

It knows nothing of dtk. Importing this module is cheap; the operation families (`dtk_kernels.attention`,
`dtk_kernels.kv`) import torch.
"""

__all__: list[str] = []
