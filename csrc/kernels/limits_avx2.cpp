// AVX2 unit of the limits.
#include "limits_table.hpp"

namespace {
constexpr int kLanes = 8;
#include "units/limits.inc"
}  // namespace

namespace dtk {
const LimitTable kAvx2Limits = {"avx2", read_floats, multiply_add, std::int64_t{kChains} * kLanes};
}  // namespace dtk
