// Top-k block selection with forced blocks.
#pragma once

#include <cstdint>

namespace dtk {

struct SelectArguments {
  const float* scores;         // dense [batch, num_groups, num_blocks]
  const std::uint8_t* forced;  // dense [batch, num_blocks] of 0 or 1, or null
  std::int32_t* selected;      // dense [batch, num_groups, num_selected]
  std::int64_t batch, num_groups, num_blocks, num_selected;
};

// Throws std::invalid_argument if a row forces more than num_selected columns.
void select_blocks(const SelectArguments& arguments);

}  // namespace dtk
