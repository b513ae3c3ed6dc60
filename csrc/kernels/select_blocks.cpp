#include "select_blocks.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "dispatch.hpp"

namespace dtk {
namespace {

void require_room_for_forced(const SelectArguments& a, std::int64_t sequence) {
  const std::uint8_t* forced = a.forced + sequence * a.num_blocks;
  const std::int64_t num_forced = std::count(forced, forced + a.num_blocks, 1);
  if (num_forced > a.num_selected) {
    throw std::invalid_argument("num_selected is " + std::to_string(a.num_selected) +
                                ", but a row of forced has " + std::to_string(num_forced) + " columns set");
  }
}

}  // namespace

void select_blocks(const SelectArguments& a, Range rows, float* scratch) {
  if (a.forced != nullptr && rows.count > 0) {
    const std::int64_t last = (rows.first + rows.count - 1) / a.num_groups;
    for (std::int64_t sequence = rows.first / a.num_groups; sequence <= last; ++sequence) {
      require_room_for_forced(a, sequence);
    }
  }
  kernels().select_blocks(a, rows, scratch);
}

}  // namespace dtk
