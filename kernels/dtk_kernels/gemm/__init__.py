"""Products of quantised matrices: a linear layer with packed weights, and the block-scaled matrix product.

Number formats are those of `dtk_kernels.formats`, blocks run along the dim that is summed over, 4-bit codes
lie two in a byte as `dtk_kernels.quant.pack` puts them. Sources: OCP Microscaling Formats (MX) 1.0 for blocks
with a shared scale; DeepSeek-V3 (arXiv 2412.19437, section 3.3) for scaling each block's partial sum in
float32. Gradients and quantisation of results are left out.
"""

from dtk_kernels.gemm.packed_linear import packed_linear
from dtk_kernels.gemm.scaled_matmul import scaled_matmul

__all__ = ["packed_linear", "scaled_matmul"]
