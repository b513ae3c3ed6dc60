// AVX-512 unit of quantisation: 512-bit vectors. Opt-in (dispatch.cpp).
#include <immintrin.h>

#include "quant_table.hpp"
#include "streaming.hpp"

namespace {
constexpr int kLanes = 16;
#include "units/vectors.inc"
#include "units/convert_avx512.inc"
#include "units/rounding.inc"
#include "units/lanes.inc"
#include "units/narrowing.inc"
#include "units/magnitudes.inc"
#include "units/scales.inc"
#include "units/quantize.inc"
#include "units/dequantize.inc"
#include "units/hadamard.inc"
#include "units/nibbles.inc"
}  // namespace

namespace dtk {
const QuantTable kAvx512Quant = {"avx512",   quantize_scratch, dequantize_scratch, hadamard_scratch, amax,
                                 only_block, quantize,         dequantize,         hadamard,         pack,
                                 unpack};
}  // namespace dtk
