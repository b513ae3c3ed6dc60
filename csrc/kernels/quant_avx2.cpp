// AVX2 unit of quantisation: 256-bit vectors, half-precision conversion.
#include <immintrin.h>

#include "quant_table.hpp"
#include "streaming.hpp"

namespace {
constexpr int kLanes = 8;
#include "units/vectors.inc"
#include "units/convert_avx2.inc"
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
const QuantTable kAvx2Quant = {"avx2",     quantize_scratch, dequantize_scratch, hadamard_scratch, amax,
                               only_block, quantize,         dequantize,         hadamard,         pack,
                               unpack};
}  // namespace dtk
