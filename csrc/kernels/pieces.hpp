// Cutting work into tasks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels.hpp"

namespace dtk {

// What a task reads, about: tens of microseconds of work, beside which its start is nothing.
constexpr std::int64_t kTaskBytes = 256 * 1024;

// Equal pieces of a row of items, for one task each.
struct Pieces {
  Pieces(std::int64_t num_items, std::int64_t item_bytes)
      : size(std::max<std::int64_t>(1, kTaskBytes / std::max<std::int64_t>(1, item_bytes))),
        total(num_items),
        number((num_items + size - 1) / size) {}

  Range at(std::int64_t piece) const { return {piece * size, std::min(size, total - piece * size)}; }

  std::int64_t size, total, number;
};

}  // namespace dtk
