#include "select_blocks.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace dtk {
namespace {

// Writes one row's selection; `chosen` is scratch memory of num_blocks columns.
void select_row(const float* scores, const std::uint8_t* forced, std::int64_t num_blocks,
                std::int64_t num_forced, std::int64_t num_selected, std::int32_t* chosen,
                std::int32_t* selected) {
  std::int32_t* const candidates = chosen + num_forced;
  std::int32_t *end = candidates, *forced_end = chosen;
  for (std::int64_t column = 0; column < num_blocks; ++column) {
    if (forced != nullptr && forced[column] != 0) {
      *forced_end++ = static_cast<std::int32_t>(column);
    } else if (scores[column] > -std::numeric_limits<float>::infinity()) {  // false for NaN
      *end++ = static_cast<std::int32_t>(column);
    }
  }
  if (end - chosen > num_selected) {
    const auto better = [scores](std::int32_t a, std::int32_t b) {
      return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    };
    std::nth_element(candidates, chosen + num_selected, end, better);
    end = chosen + num_selected;
  }
  std::sort(chosen, end);
  std::fill(std::copy(chosen, end, selected), selected + num_selected, -1);
}

}  // namespace

std::int64_t select_scratch(const SelectArguments& a) { return a.num_blocks; }

void select_blocks(const SelectArguments& a, Range rows, float* scratch) {
  auto* const chosen = reinterpret_cast<std::int32_t*>(scratch);
  for (std::int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    const std::uint8_t* forced = a.forced == nullptr ? nullptr : a.forced + row / a.num_groups * a.num_blocks;
    const std::int64_t num_forced = forced == nullptr ? 0 : std::count(forced, forced + a.num_blocks, 1);
    if (num_forced > a.num_selected) {
      throw std::invalid_argument("num_selected is " + std::to_string(a.num_selected) +
                                  ", but a row of forced has " + std::to_string(num_forced) + " columns set");
    }
    select_row(a.scores + row * a.num_blocks, forced, a.num_blocks, num_forced, a.num_selected, chosen,
               a.selected + row * a.num_selected);
  }
}

}  // namespace dtk
