// AVX2 unit: 256-bit vectors, fused multiply-add, half-precision conversion.
#include <immintrin.h>

#include "kernels.hpp"

namespace {
constexpr int kLanes = 8;
constexpr int kScoreSums = 8;  // sums that stay in the 16 registers
constexpr int kOutputSums = 8;
#include "units/vectors.inc"
#include "units/convert_avx2.inc"
#include "units/query.inc"
#include "units/packed_kv.inc"
#include "units/packed_kv_avx2.inc"
#include "units/token_walk.inc"
#include "units/attention.inc"
#include "units/digests.inc"
#include "units/merge.inc"
#include "units/scores.inc"
#include "units/select.inc"
#include "units/activations.inc"
#include "units/products_avx2.inc"
#include "units/products.inc"
#include "units/matmul.inc"
}  // namespace

namespace dtk {
const KernelTable kAvx2Kernels = {
    "avx2",
    attention_scratch,
    attention_task,
    score_scratch,
    block_score,
    block_digest,
    select_scratch,
    select_blocks,
    merge_partials,
    activation_floats,
    quantize_activations,
    packed_linear,
    scaled_matmul_scratch,
    scaled_matmul,
};
}  // namespace dtk
