"""Quantisation to the number formats of `dtk_kernels.formats`: codes, block scales, packing, rotations.

Every implementation of an operation gives the same bits as its reference. `quantize` says how values round
and what becomes of zeros, NaN and Inf.
"""

from dtk_kernels.quant._scales import NvScales
from dtk_kernels.quant.dequantize import dequantize
from dtk_kernels.quant.fake_quantize import fake_quantize
from dtk_kernels.quant.hadamard import hadamard
from dtk_kernels.quant.pack import pack
from dtk_kernels.quant.quantize import quantize
from dtk_kernels.quant.unpack import unpack

__all__ = ["NvScales", "dequantize", "fake_quantize", "hadamard", "pack", "quantize", "unpack"]
