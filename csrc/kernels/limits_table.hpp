// What the units of the limits' measurement offer, one table an instruction set; as bare as kernels.hpp.
#pragma once

#include <cstdint>

namespace dtk {

struct LimitTable {
  const char* instruction_set;
  // The sum of `count` floats, each read once; a multiple of kReadStep.
  float (*read)(const float* from, std::int64_t count);
  // Runs the register-only loop and returns the sum of its values, which tends to their number.
  float (*multiply_add)(std::int64_t steps);
  // Multiply-adds in one step.
  std::int64_t multiply_adds_per_step;
};

// Floats that one step of `read` takes, in every unit.
constexpr std::int64_t kReadStep = 1024;

extern const LimitTable kGenericLimits;
#if defined(DTK_HAVE_AVX2)
extern const LimitTable kAvx2Limits;
extern const LimitTable kAvx512Limits;
#endif

}  // namespace dtk
