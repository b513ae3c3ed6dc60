#include "bindings.hpp"

#include <cstring>
#include <numeric>
#include <vector>

#include "block_copy.hpp"
#include "huge_pages.hpp"

namespace py = pybind11;

namespace dtk {
namespace {

std::vector<std::int32_t> ids_of(const TensorView& view) {
  const auto* first = view.as<const std::int32_t>();
  return {first, first + view.shape[0]};
}

PoolView pool_of(const TensorView& view) { return {view.data, view.shape, view.strides}; }

std::vector<std::int32_t> counting(std::size_t count) {
  std::vector<std::int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

void run_all(const BlockCopy& copy) { copy.run(0, copy.num_pairs()); }

void gather_blocks(const TensorView& pool, const TensorView& block_ids, const TensorView& blocks) {
  const py::gil_scoped_release release;
  const BlockCopy copy = gather_copy(pool, block_ids, blocks);
  run_all(copy);
  const std::int64_t bytes = copy.block_bytes();
  if (bytes == 0) return;
  for (std::byte* const block : absent_blocks(block_ids, blocks, bytes)) {
    std::memset(block, 0, static_cast<std::size_t>(bytes));
  }
}

void scatter_blocks(const TensorView& pool, const TensorView& block_ids, const TensorView& blocks) {
  const py::gil_scoped_release release;
  run_all(scatter_copy(pool, block_ids, blocks));
}

// For pools that share memory: all blocks are read before one is written.
void copy_through_buffer(const BlockCopy& checked, const TensorView& source_pool,
                         const TensorView& source_ids, const TensorView& target_pool,
                         const TensorView& target_ids) {
  const auto sources = ids_of(source_ids);
  auto targets = ids_of(target_ids);
  for (std::size_t index = 0; index < sources.size(); ++index) {
    if (sources[index] == -1) targets[index] = -1;
  }
  std::vector<std::byte> memory(sources.size() * static_cast<std::size_t>(checked.block_bytes()));
  PoolView buffer = {memory.data(), source_pool.shape, source_pool.strides};
  buffer.shape[0] = static_cast<std::int64_t>(sources.size());
  std::int64_t stride = 1;
  for (std::size_t dim = buffer.shape.size(); dim-- > 0; stride *= buffer.shape[dim]) {
    buffer.strides[dim] = stride;
  }
  const auto places = counting(sources.size());
  run_all({pool_of(source_pool), sources, "source_ids", buffer, places, "buffer", source_pool.element_size});
  run_all({buffer, places, "buffer", pool_of(target_pool), targets, "target_ids", source_pool.element_size});
}

void copy_blocks(const TensorView& source_pool, const TensorView& source_ids, const TensorView& target_pool,
                 const TensorView& target_ids, bool shared_memory) {
  const py::gil_scoped_release release;
  const BlockCopy copy = block_copy(source_pool, source_ids, target_pool, target_ids);
  if (shared_memory) {
    copy_through_buffer(copy, source_pool, source_ids, target_pool, target_ids);
  } else {
    run_all(copy);
  }
}

}  // namespace

BlockCopy block_copy(const TensorView& source_pool, const TensorView& source_ids,
                     const TensorView& target_pool, const TensorView& target_ids) {
  return {pool_of(source_pool),    ids_of(source_ids), "source_ids",
          pool_of(target_pool),    ids_of(target_ids), "target_ids",
          source_pool.element_size};
}

BlockCopy gather_copy(const TensorView& pool, const TensorView& block_ids, const TensorView& blocks) {
  prefer_huge_pages(blocks.data, blocks.num_bytes());  // newly allocated, and about to be written in full
  auto ids = ids_of(block_ids);
  auto targets = counting(ids.size());
  return {pool_of(pool),      std::move(ids), "block_ids",      pool_of(blocks),
          std::move(targets), "blocks",       pool.element_size};
}

BlockCopy scatter_copy(const TensorView& pool, const TensorView& block_ids, const TensorView& blocks) {
  auto ids = ids_of(block_ids);
  auto sources = counting(ids.size());
  return {pool_of(blocks), std::move(sources), "blocks",         pool_of(pool),
          std::move(ids),  "block_ids",        pool.element_size};
}

std::vector<std::byte*> absent_blocks(const TensorView& block_ids, const TensorView& blocks,
                                      std::int64_t block_bytes) {
  std::vector<std::byte*> absent;
  const auto* ids = block_ids.as<const std::int32_t>();
  for (std::int64_t index = 0; index < block_ids.shape[0]; ++index) {
    if (ids[index] == -1) absent.push_back(blocks.data + index * block_bytes);
  }
  return absent;
}

void bind_kv(py::module_& module) {
  module.def("gather_blocks", &gather_blocks);
  module.def("scatter_blocks", &scatter_blocks);
  module.def("copy_blocks", &copy_blocks);
}

}  // namespace dtk
