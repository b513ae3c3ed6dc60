#include "select_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace dtk {
namespace {

// Writes one row's selection; `chosen` and `candidates` are scratch that keeps its memory between rows.
void select_row(const float* scores, const std::uint8_t* forced, std::int64_t num_blocks,
                std::int64_t num_selected, std::vector<std::int32_t>& chosen,
                std::vector<std::int32_t>& candidates, std::int32_t* selected) {
  chosen.clear();
  candidates.clear();
  for (std::int64_t column = 0; column < num_blocks; ++column) {
    if (forced != nullptr && forced[column] != 0) {
      chosen.push_back(static_cast<std::int32_t>(column));
    } else if (scores[column] > -std::numeric_limits<float>::infinity()) {  // false for NaN
      candidates.push_back(static_cast<std::int32_t>(column));
    }
  }
  const auto wanted = static_cast<std::size_t>(num_selected) - chosen.size();
  if (candidates.size() > wanted) {
    const auto better = [scores](std::int32_t a, std::int32_t b) {
      return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    };
    const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(wanted);
    std::nth_element(candidates.begin(), end, candidates.end(), better);
    candidates.erase(end, candidates.end());
  }
  chosen.insert(chosen.end(), candidates.begin(), candidates.end());
  std::sort(chosen.begin(), chosen.end());
  std::fill(std::copy(chosen.begin(), chosen.end(), selected), selected + num_selected, -1);
}

}  // namespace

void select_blocks(const SelectArguments& a) {
  std::vector<std::int32_t> chosen, candidates;
  for (std::int64_t sequence = 0; sequence < a.batch; ++sequence) {
    const std::uint8_t* forced = a.forced == nullptr ? nullptr : a.forced + sequence * a.num_blocks;
    const std::int64_t num_forced = forced == nullptr ? 0 : std::count(forced, forced + a.num_blocks, 1);
    if (num_forced > a.num_selected) {
      throw std::invalid_argument("num_selected is " + std::to_string(a.num_selected) +
                                  ", but a row of forced has " + std::to_string(num_forced) + " columns set");
    }
    for (std::int64_t group = 0; group < a.num_groups; ++group) {
      const std::int64_t row = sequence * a.num_groups + group;
      select_row(a.scores + row * a.num_blocks, forced, a.num_blocks, a.num_selected, chosen, candidates,
                 a.selected + row * a.num_selected);
    }
  }
}

}  // namespace dtk
