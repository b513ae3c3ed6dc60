#include "jobs.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attention_split.hpp"
#include "dispatch.hpp"
#include "pieces.hpp"

namespace dtk {
namespace {

std::int64_t bytes_of(DType type) { return type == kFloat32 ? 4 : 2; }

// Points `table` at a copy of its own, which the result keeps alive.
std::shared_ptr<const std::int32_t[]> keep_copy(const std::int32_t*& table, std::int64_t num_entries) {
  const std::shared_ptr<std::int32_t[]> copy(new std::int32_t[static_cast<std::size_t>(num_entries)]);
  std::copy_n(table, num_entries, copy.get());
  table = copy.get();
  return copy;
}

struct CopyTask {
  std::size_t copy;
  Range pairs;
};

std::vector<CopyTask> split(const std::vector<BlockCopy>& copies) {
  std::vector<CopyTask> tasks;
  for (std::size_t copy = 0; copy < copies.size(); ++copy) {
    const Pieces pieces(copies[copy].num_pairs(), copies[copy].block_bytes());
    for (std::int64_t piece = 0; piece < pieces.number; ++piece) tasks.push_back({copy, pieces.at(piece)});
  }
  return tasks;
}

}  // namespace

std::shared_ptr<Job> attention_job(AttentionArguments a) {
  const std::int64_t num_entries = a.batch * a.num_groups * a.num_blocks;
  auto table = keep_copy(a.block_table, num_entries);
  auto lengths = keep_copy(a.block_lengths, num_entries);
  const auto split = std::make_shared<AttentionSplit>(a);
  return std::make_shared<Job>(TaskCounts{split->num_sequences(), split->num_tasks_of_sequence()},
                               [table = std::move(table), lengths = std::move(lengths), split](
                                   std::int64_t task, Scratch& scratch) { split->run(task, scratch); });
}

std::shared_ptr<Job> digest_job(DigestArguments a) {
  auto lengths = keep_copy(a.block_lengths, a.num_blocks);
  const Pieces pieces(a.num_blocks, a.num_kv_heads * a.block_size * a.head_dim * bytes_of(a.type));
  return std::make_shared<Job>(
      TaskCounts{pieces.number, 1}, [a, pieces, lengths = std::move(lengths)](std::int64_t task, Scratch&) {
        throw_if(kernels().block_digest(a, pieces.at(task)), "block_lengths", a.num_blocks, a.block_size);
      });
}

std::shared_ptr<Job> score_job(ScoreArguments a) {
  auto table = keep_copy(a.block_table, a.batch * a.num_blocks);
  const Pieces pieces(a.num_blocks, 2 * a.num_kv_heads * a.head_dim * bytes_of(a.digest_type));
  return std::make_shared<Job>(TaskCounts{a.batch, pieces.number}, [a, pieces, table = std::move(table)](
                                                                       std::int64_t task, Scratch& scratch) {
    Range entries = pieces.at(task % pieces.number);
    entries.first += task / pieces.number * a.num_blocks;
    float* memory = scratch.floats(kernels().score_scratch(a));
    throw_if(kernels().block_score(a, entries, memory), "block_table", a.num_pool_blocks, 0);
  });
}

std::shared_ptr<Job> select_job(const SelectArguments& a) {
  const Pieces pieces(a.num_groups, a.num_blocks * 4);
  return std::make_shared<Job>(TaskCounts{a.batch, pieces.number},
                               [a, pieces](std::int64_t task, Scratch& scratch) {
                                 Range rows = pieces.at(task % pieces.number);
                                 rows.first += task / pieces.number * a.num_groups;
                                 select_blocks(a, rows, scratch.floats(kernels().select_scratch(a)));
                               });
}

std::shared_ptr<Job> packed_linear_job(const ProductArguments& a) {
  const auto memory = std::make_shared<Scratch>();
  float* const activations = memory->floats(kernels().activation_floats(a));
  kernels().quantize_activations(a, activations);
  Pieces pieces(a.num_outputs, a.format == kE2M1 ? a.depth / 2 : a.depth);
  return std::make_shared<Job>(TaskCounts{pieces.number, 1},
                               [a, pieces, memory, activations](std::int64_t task, Scratch&) {
                                 kernels().packed_linear(a, activations, pieces.at(task));
                               });
}

std::shared_ptr<Job> copy_job(std::vector<BlockCopy> copies) {
  auto tasks = split(copies);
  const auto num_tasks = static_cast<std::int64_t>(tasks.size());
  return std::make_shared<Job>(
      TaskCounts{num_tasks, 1},
      [copies = std::move(copies), tasks = std::move(tasks)](std::int64_t index, Scratch&) {
        const CopyTask& task = tasks[static_cast<std::size_t>(index)];
        copies[task.copy].run(task.pairs.first, task.pairs.first + task.pairs.count);
      });
}

std::shared_ptr<Job> gather_job(BlockCopy copy, std::vector<std::byte*> absent) {
  const Pieces copied(copy.num_pairs(), copy.block_bytes());
  const Pieces zeroed(static_cast<std::int64_t>(absent.size()), copy.block_bytes());
  return std::make_shared<Job>(
      TaskCounts{copied.number + zeroed.number, 1},
      [copied, zeroed, copy = std::move(copy), absent = std::move(absent)](std::int64_t task, Scratch&) {
        if (task < copied.number) {
          const Range pairs = copied.at(task);
          return copy.run(pairs.first, pairs.first + pairs.count);
        }
        const Range blocks = zeroed.at(task - copied.number);
        for (std::int64_t block = blocks.first; block < blocks.first + blocks.count; ++block) {
          std::byte* const memory = absent[static_cast<std::size_t>(block)];
          if (copy.block_bytes() > 0) std::memset(memory, 0, static_cast<std::size_t>(copy.block_bytes()));
        }
      });
}

}  // namespace dtk
