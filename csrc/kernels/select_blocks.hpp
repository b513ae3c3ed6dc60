// Top-k block selection with forced blocks.
#pragma once

#include "kernels.hpp"

namespace dtk {

// Selects in some rows, which are (sequence, group) pairs. Throws std::invalid_argument if one of them forces
// more than num_selected columns.
void select_blocks(const SelectArguments& arguments, Range rows, float* scratch);

}  // namespace dtk
