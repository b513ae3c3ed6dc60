"""The operations of the kernel layer, as data. Free of torch, so that asking what there is stays cheap."""

__all__ = ["IMPLEMENTATION_MODULES", "OPERATION_PACKAGES"]

OPERATION_PACKAGES = {
    "block_digest": "dtk_kernels.attention.block_digest",
    "block_score": "dtk_kernels.attention.block_score",
    "select_blocks": "dtk_kernels.attention.select_blocks",
    "sparse_decode_attention": "dtk_kernels.attention.sparse_decode_attention",
    "quantized_decode_attention": "dtk_kernels.attention.quantized_decode_attention",
    "merge_partials": "dtk_kernels.attention.merge_partials",
    "gather_blocks": "dtk_kernels.kv.gather_blocks",
    "scatter_blocks_": "dtk_kernels.kv.scatter_blocks",
    "copy_blocks_": "dtk_kernels.kv.copy_blocks",
    "quantize": "dtk_kernels.quant.quantize",
    "dequantize": "dtk_kernels.quant.dequantize",
    "fake_quantize": "dtk_kernels.quant.fake_quantize",
    "pack": "dtk_kernels.quant.pack",
    "unpack": "dtk_kernels.quant.unpack",
    "hadamard": "dtk_kernels.quant.hadamard",
    "packed_linear": "dtk_kernels.gemm.packed_linear",
    "scaled_matmul": "dtk_kernels.gemm.scaled_matmul",
}

# The file, inside an operation's folder, that holds each implementation.
IMPLEMENTATION_MODULES = {"reference": "reference", "native": "native", "triton": "triton_kernel"}
