#include "block_copy.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "streaming.hpp"

namespace dtk {
namespace {

void require_in_range(const char* name, const std::vector<std::int32_t>& ids, std::int64_t num_pool_blocks) {
  for (const std::int32_t id : ids) {
    if (id < -1 || id >= num_pool_blocks) {
      throw std::invalid_argument(std::string(name) + " holds " + std::to_string(id) +
                                  "; ids are -1 (no block) or below " + std::to_string(num_pool_blocks) +
                                  ", the pool size");
    }
  }
}

void require_distinct(const char* name, std::vector<std::int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) {
    throw std::invalid_argument(std::string(name) + " holds " + std::to_string(*twice) +
                                " more than once; a block can be written only once");
  }
}

}  // namespace

BlockCopy::BlockCopy(const PoolView& source, std::vector<std::int32_t> source_ids, const char* source_name,
                     const PoolView& target, std::vector<std::int32_t> target_ids, const char* target_name,
                     std::int64_t element_size)
    : source_(source.data), target_(target.data) {
  require_in_range(source_name, source_ids, source.shape[0]);
  require_in_range(target_name, target_ids, target.shape[0]);
  std::vector<std::int32_t> written;
  for (std::size_t index = 0; index < source_ids.size(); ++index) {
    if (source_ids[index] < 0 || target_ids[index] < 0) continue;
    pairs_.push_back({source_ids[index], target_ids[index]});
    written.push_back(target_ids[index]);
  }
  require_distinct(target_name, std::move(written));
  plan(source, target, element_size);
}

void BlockCopy::plan(const PoolView& source, const PoolView& target, std::int64_t element_size) {
  source_block_stride_ = source.strides[0] * element_size;
  target_block_stride_ = target.strides[0] * element_size;
  run_bytes_ = block_bytes_ = element_size;
  for (std::size_t dim = source.shape.size(); dim-- > 1;) {  // innermost first
    const Dim next = {source.shape[dim], source.strides[dim] * element_size,
                      target.strides[dim] * element_size};
    block_bytes_ *= next.size;
    if (next.size == 1) continue;
    if (dims_.empty() && next.source_stride == run_bytes_ && next.target_stride == run_bytes_) {
      run_bytes_ *= next.size;
      continue;
    }
    if (!dims_.empty() && next.source_stride == dims_.back().source_stride * dims_.back().size &&
        next.target_stride == dims_.back().target_stride * dims_.back().size) {
      dims_.back().size *= next.size;
      continue;
    }
    dims_.push_back(next);
  }
  std::reverse(dims_.begin(), dims_.end());
  streams_ = worth_streaming(run_bytes_, block_bytes_ * num_pairs());
}

void BlockCopy::run(std::int64_t begin, std::int64_t end) const {
  if (block_bytes_ == 0) return;
  for (std::int64_t index = begin; index < end; ++index) {
    const Pair pair = pairs_[static_cast<std::size_t>(index)];
    copy_dims(0, source_ + pair.source * source_block_stride_, target_ + pair.target * target_block_stride_);
  }
  if (streams_) finish_streaming();
}

void BlockCopy::copy_dims(std::size_t dim, const std::byte* source, std::byte* target) const {
  if (dim == dims_.size()) {
    const auto count = static_cast<std::size_t>(run_bytes_);
    if (streams_) {
      copy_streaming(target, source, count);
    } else {
      std::memcpy(target, source, count);
    }
    return;
  }
  for (std::int64_t index = 0; index < dims_[dim].size; ++index) {
    copy_dims(dim + 1, source + index * dims_[dim].source_stride, target + index * dims_[dim].target_stride);
  }
}

}  // namespace dtk
