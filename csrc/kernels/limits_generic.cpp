// Baseline unit of the limits: 128-bit vectors.
#include "limits_table.hpp"

namespace {
constexpr int kLanes = 4;
#include "units/limits.inc"
}  // namespace

namespace dtk {
const LimitTable kGenericLimits = {"generic", read_floats, multiply_add, std::int64_t{kChains} * kLanes};
}  // namespace dtk
