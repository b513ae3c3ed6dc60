// Advice to the operating system about memory that is written for the first time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtk {

// Asks for huge pages, where they fit in the range: the first write to each page of 4 KiB costs more than
// filling it. Does nothing for small ranges, or where the system has no such advice.
void prefer_huge_pages(std::byte* data, std::int64_t num_bytes);

}  // namespace dtk
