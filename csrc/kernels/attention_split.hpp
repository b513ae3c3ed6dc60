// One attention call cut into tasks that threads run in any order.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels.hpp"
#include "scratch.hpp"

namespace dtk {

// Each list of blocks (a sequence's, for one KV head) is cut into runs of about 512 tokens, whatever the
// number of threads and the size of the batch, and the partial results are merged in order: the result
// depends on nothing else, bit for bit. Keeps no tables and no tensors alive.
class AttentionSplit {
 public:
  explicit AttentionSplit(const AttentionArguments& arguments);

  std::int64_t num_sequences() const { return arguments_.batch; }
  std::int64_t num_tasks_of_sequence() const { return arguments_.num_kv_heads * num_chunks_; }
  std::int64_t num_tasks() const { return num_sequences() * num_tasks_of_sequence(); }

  // Runs one task, each once, sequence by sequence in any order; the last of a list merges its partial
  // results into arguments.output and .lse. Throws std::invalid_argument if the tables hold something wrong;
  // the result is void then.
  void run(std::int64_t index, Scratch& scratch);

 private:
  std::int64_t num_lists() const { return arguments_.batch * arguments_.num_kv_heads; }
  std::int64_t outputs_of_chunk() const { return arguments_.group_size * arguments_.head_dim; }
  void merge(std::int64_t list) const;

  const AttentionArguments arguments_;
  const std::int64_t columns_of_chunk_, num_chunks_;
  // Partial results [num_lists, num_chunks, group_size, head_dim] and [num_lists, num_chunks, group_size],
  // and how many are still missing; none where a list is one chunk, whose task writes the result itself.
  std::unique_ptr<float[]> outputs_, lses_;
  std::unique_ptr<std::atomic<std::int64_t>[]> num_missing_;
};

}  // namespace dtk
