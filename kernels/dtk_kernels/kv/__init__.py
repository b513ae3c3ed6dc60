"""Moving blocks of a key/value cache in, out of and between pools.

A pool is any tensor whose first dim counts blocks. int32 ids name the blocks; -1 means "no block".

On CPU tensors what tables and ids hold is checked (ValueError). On CUDA tensors it is not: the check would
wait for the GPU.
"""

from dtk_kernels.kv.copy_blocks import copy_blocks_
from dtk_kernels.kv.gather_blocks import gather_blocks
from dtk_kernels.kv.scatter_blocks import scatter_blocks_

__all__ = ["copy_blocks_", "gather_blocks", "scatter_blocks_"]
