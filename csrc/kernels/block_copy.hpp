// Copies of blocks between pools of any strides and element type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtk {

// A pool's memory: dim 0 counts blocks. Strides in elements.
struct PoolView {
  std::byte* data;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

// Copies block source_ids[i] of one pool to block target_ids[i] of another.
class BlockCopy {
 public:
  // Throws std::invalid_argument, with the given names in its text, if an id is out of range or a target that
  // will be written occurs twice. Pairs with a -1 are left out.
  BlockCopy(const PoolView& source, std::vector<std::int32_t> source_ids, const char* source_name,
            const PoolView& target, std::vector<std::int32_t> target_ids, const char* target_name,
            std::int64_t element_size);

  std::int64_t num_pairs() const { return static_cast<std::int64_t>(pairs_.size()); }
  std::int64_t block_bytes() const { return block_bytes_; }

  // Copies pairs begin..end-1.
  void run(std::int64_t begin, std::int64_t end) const;

 private:
  struct Pair {
    std::int32_t source, target;
  };
  // One dim of a block, in bytes; dims that are dense in both pools are merged, the innermost ones into run_.
  struct Dim {
    std::int64_t size, source_stride, target_stride;
  };

  void plan(const PoolView& source, const PoolView& target, std::int64_t element_size);
  void copy_dims(std::size_t dim, const std::byte* source, std::byte* target) const;

  const std::byte* source_;
  std::byte* target_;
  std::int64_t source_block_stride_, target_block_stride_;
  std::vector<Dim> dims_;
  std::int64_t run_bytes_, block_bytes_;
  bool streams_;  // past the cache
  std::vector<Pair> pairs_;
};

}  // namespace dtk
