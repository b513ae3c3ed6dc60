// Working memory of one thread, kept from task to task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace dtk {

class Scratch {
 public:
  // At least `count` floats of any content, aligned to a cache line; valid until the next call.
  float* floats(std::int64_t count) {
    if (count > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(new (kAlignment) float[static_cast<std::size_t>(count)]);
      size_ = count;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(float* memory) const { ::operator delete[](memory, kAlignment); }
  };

  std::unique_ptr<float[], Delete> memory_;
  std::int64_t size_ = 0;
};

}  // namespace dtk
