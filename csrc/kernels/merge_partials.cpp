#include "merge_partials.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dtk {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

float highest_lse(const MergeArguments& a, std::int64_t row) {
  float peak = kEmpty;
  for (std::int64_t partial = 0; partial < a.num_partials; ++partial) {
    const float lse = a.lses[partial * a.num_rows + row];
    if (lse > peak || std::isnan(lse)) peak = lse;
  }
  return peak;
}

void merge_row(const MergeArguments& a, std::int64_t row) {
  float* output = a.output + row * a.head_dim;
  std::fill_n(output, a.head_dim, 0.0F);
  const float peak = highest_lse(a, row);
  float total = 0.0F;
  for (std::int64_t partial = 0; partial < a.num_partials; ++partial) {
    const float lse = a.lses[partial * a.num_rows + row];
    if (lse == kEmpty) continue;  // whatever its output holds must not leak in as 0 * NaN
    const float weight = std::exp(lse - peak);
    const float* from = a.outputs + (partial * a.num_rows + row) * a.head_dim;
    for (std::int64_t channel = 0; channel < a.head_dim; ++channel) output[channel] += weight * from[channel];
    total += weight;
  }
  a.lse[row] = peak == kEmpty ? kEmpty : peak + std::log(total);
  if (peak == kEmpty) return;
  for (std::int64_t channel = 0; channel < a.head_dim; ++channel) output[channel] /= total;
}

}  // namespace

void merge_partials(const MergeArguments& arguments, Range rows) {
  for (std::int64_t row = rows.first; row < rows.first + rows.count; ++row) merge_row(arguments, row);
}

}  // namespace dtk
