// Top-k block selection with forced blocks.
#pragma once

#include <cstdint>

#include "kernels.hpp"

namespace dtk {

struct SelectArguments {
  const float* scores;         // dense [batch, num_groups, num_blocks]
  const std::uint8_t* forced;  // dense [batch, num_blocks] of 0 or 1, or null
  std::int32_t* selected;      // dense [batch, num_groups, num_selected]
  std::int64_t batch, num_groups, num_blocks, num_selected;
};

// Elements of scratch memory that one call needs.
std::int64_t select_scratch(const SelectArguments& arguments);

// Rows are (sequence, group) pairs. Throws std::invalid_argument if one of them forces more than num_selected
// columns.
void select_blocks(const SelectArguments& arguments, Range rows, float* scratch);

}  // namespace dtk
