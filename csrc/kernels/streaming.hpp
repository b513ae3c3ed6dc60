// Copies with stores that go past the cache. Declarations only: units include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtk {

// Whether so much (bytes), written in runs of so much, should go past the cache.
bool worth_streaming(std::int64_t run_bytes, std::int64_t total_bytes);

// memcpy with such stores, where the machine has them. Finish with finish_streaming().
void copy_streaming(std::byte* target, const std::byte* source, std::size_t count);

// Such stores are not in order with others: a thread that is told of the end must see them all.
void finish_streaming();

}  // namespace dtk
