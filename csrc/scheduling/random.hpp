// splitmix64 (Steele, Lea and Flood 2014): small, and the same on every machine.
#pragma once

#include <cstdint>

namespace dtk::scheduling {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }

  // From 0 to bound - 1.
  int32_t below(int32_t bound) { return int32_t((next() >> 32) * uint64_t(bound) >> 32); }

 private:
  uint64_t state_;
};

}  // namespace dtk::scheduling
