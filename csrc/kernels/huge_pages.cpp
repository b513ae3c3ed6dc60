#include "huge_pages.hpp"

#include <sys/mman.h>

namespace dtk {

void prefer_huge_pages(std::byte* data, std::int64_t num_bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kHugePage = 2 * 1024 * 1024;
  constexpr std::int64_t kLeast = 2 * kHugePage;
  if (num_bytes < kLeast) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(data),
             end = begin + static_cast<std::uintptr_t>(num_bytes);
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t last = end / kHugePage * kHugePage;
  static_cast<void>(madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE));  // only advice
#else
  static_cast<void>(data);
  static_cast<void>(num_bytes);
#endif
}

}  // namespace dtk
