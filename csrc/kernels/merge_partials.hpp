// Merge of partial attention results by their natural-log log-sum-exp.
#pragma once

#include <cstdint>

#include "kernels.hpp"

namespace dtk {

struct MergeArguments {
  const float* outputs;  // dense [num_partials, num_rows, head_dim]
  const float* lses;     // dense [num_partials, num_rows]
  float* output;         // dense [num_rows, head_dim]
  float* lse;            // dense [num_rows]
  std::int64_t num_partials, num_rows, head_dim;
};

void merge_partials(const MergeArguments& arguments, Range rows);

}  // namespace dtk
