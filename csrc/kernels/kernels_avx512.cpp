// AVX-512 unit: 512-bit vectors and twice the registers. Opt-in (dispatch.cpp).
#include <immintrin.h>

#include "kernels.hpp"

namespace {
constexpr int kLanes = 16;
constexpr int kScoreSums = 16;  // sums that stay in the 32 registers
constexpr int kOutputSums = 16;
#include "units/vectors.inc"
#include "units/convert_avx512.inc"
#include "units/query.inc"
#include "units/packed_kv.inc"
#include "units/packed_kv_avx512.inc"
#include "units/token_walk.inc"
#include "units/attention.inc"
#include "units/digests.inc"
#include "units/merge.inc"
#include "units/scores.inc"
#include "units/select.inc"
#include "units/activations.inc"
#include "units/products_avx512.inc"
#include "units/products.inc"
#include "units/matmul.inc"
}  // namespace

namespace dtk {
const KernelTable kAvx512Kernels = {
    "avx512",
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
