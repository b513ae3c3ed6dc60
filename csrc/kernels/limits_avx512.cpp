// AVX-512 unit of the limits. Chosen by a check at run time: it measures the machine, whatever the kernels
// use.
#include "limits_table.hpp"

namespace {
constexpr int kLanes = 16;
#include "units/limits.inc"
}  // namespace

namespace dtk {
const LimitTable kAvx512Limits = {"avx512", read_floats, multiply_add, std::int64_t{kChains} * kLanes};
}  // namespace dtk
