#include "attention_split.hpp"

#include <algorithm>
#include <cstddef>

#include "dispatch.hpp"

namespace dtk {
namespace {

// Enough work (tens of microseconds) to make a task's start and the merge vanish beside it; few enough to
// share the usual selection of 2,048 tokens out evenly.
constexpr std::int64_t kChunkTokens = 512;

std::int64_t chunks(std::int64_t num_columns, std::int64_t columns_of_chunk) {
  return std::max<std::int64_t>(1, (num_columns + columns_of_chunk - 1) / columns_of_chunk);
}

}  // namespace

AttentionSplit::AttentionSplit(const AttentionArguments& arguments)
    : arguments_(arguments),
      columns_of_chunk_(std::max<std::int64_t>(1, kChunkTokens / arguments.block_size)),
      num_chunks_(chunks(arguments.num_blocks, columns_of_chunk_)) {
  if (num_chunks_ == 1) return;
  const auto lists = static_cast<std::size_t>(num_lists());
  const auto partials = static_cast<std::size_t>(num_lists() * num_chunks_);
  outputs_.reset(new float[partials * static_cast<std::size_t>(outputs_of_chunk())]);
  lses_.reset(new float[partials * static_cast<std::size_t>(arguments_.group_size)]);
  num_missing_.reset(new std::atomic<std::int64_t>[lists]);
  for (std::size_t list = 0; list < lists; ++list) num_missing_[list].store(num_chunks_);
}

void AttentionSplit::run(std::int64_t index, Scratch& scratch) {
  const std::int64_t list = index / num_chunks_, chunk = index % num_chunks_;
  AttentionTask task{};
  task.sequence = list / arguments_.num_kv_heads;
  task.kv_head = list % arguments_.num_kv_heads;
  task.first_column = chunk * columns_of_chunk_;
  task.num_columns = std::min(columns_of_chunk_, arguments_.num_blocks - task.first_column);
  const bool partial = num_chunks_ > 1;
  const std::int64_t place = partial ? index : list;
  task.output = (partial ? outputs_.get() : arguments_.output) + place * outputs_of_chunk();
  task.lse = (partial ? lses_.get() : arguments_.lse) + place * arguments_.group_size;
  float* memory = scratch.floats(kernels().attention_scratch(arguments_));
  const TableError error = kernels().attention_task(arguments_, task, memory);
  throw_if(error, "block_table", arguments_.num_pool_blocks, arguments_.block_size);
  // Releases this thread's partial result, and acquires those of the others if it was the last.
  if (partial && num_missing_[static_cast<std::size_t>(list)].fetch_sub(1, std::memory_order_acq_rel) == 1) {
    merge(list);
  }
}

void AttentionSplit::merge(std::int64_t list) const {
  MergeArguments a{};
  a.outputs = outputs_.get() + list * num_chunks_ * outputs_of_chunk();
  a.lses = lses_.get() + list * num_chunks_ * arguments_.group_size;
  a.output = arguments_.output + list * outputs_of_chunk();
  a.lse = arguments_.lse + list * arguments_.group_size;
  a.num_partials = num_chunks_;
  a.num_rows = arguments_.group_size;
  a.head_dim = arguments_.head_dim;
  kernels().merge_partials(a, {0, a.num_rows});
}

}  // namespace dtk
