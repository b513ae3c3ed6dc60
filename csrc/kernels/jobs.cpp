#include "jobs.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "dispatch.hpp"

namespace dtk {
namespace {

constexpr std::int64_t kCopyTaskBytes = 256 * 1024;

struct AttentionWork {
  AttentionArguments arguments;
  std::vector<std::int32_t> block_table;
  std::vector<std::int32_t> block_lengths;
};

struct CopyTask {
  std::size_t copy;
  std::int64_t begin, end;
};

std::vector<CopyTask> split(const std::vector<BlockCopy>& copies) {
  std::vector<CopyTask> tasks;
  for (std::size_t copy = 0; copy < copies.size(); ++copy) {
    const std::int64_t num_pairs = copies[copy].num_pairs();
    const std::int64_t step =
        std::max<std::int64_t>(1, kCopyTaskBytes / std::max<std::int64_t>(1, copies[copy].block_bytes()));
    for (std::int64_t begin = 0; begin < num_pairs; begin += step) {
      tasks.push_back({copy, begin, std::min(num_pairs, begin + step)});
    }
  }
  return tasks;
}

}  // namespace

std::shared_ptr<Job> attention_job(const AttentionArguments& a) {
  const std::int64_t num_entries = a.batch * a.num_groups * a.num_blocks;
  const auto work = std::make_shared<AttentionWork>();
  work->arguments = a;
  work->block_table.assign(a.block_table, a.block_table + num_entries);
  work->block_lengths.assign(a.block_lengths, a.block_lengths + num_entries);
  work->arguments.block_table = work->block_table.data();
  work->arguments.block_lengths = work->block_lengths.data();
  return std::make_shared<Job>(a.batch * a.num_kv_heads, [work](std::int64_t task, Scratch& scratch) {
    const AttentionArguments& arguments = work->arguments;
    float* memory = scratch.floats(kernels().attention_scratch(arguments));
    const TableError error = kernels().attention_task(arguments, task / arguments.num_kv_heads,
                                                      task % arguments.num_kv_heads, memory);
    throw_if(error, "block_table", arguments.num_pool_blocks, arguments.block_size);
  });
}

std::shared_ptr<Job> copy_job(std::vector<BlockCopy> copies) {
  auto tasks = split(copies);
  const auto num_tasks = static_cast<std::int64_t>(tasks.size());
  return std::make_shared<Job>(
      num_tasks, [copies = std::move(copies), tasks = std::move(tasks)](std::int64_t index, Scratch&) {
        const CopyTask& task = tasks[static_cast<std::size_t>(index)];
        copies[task.copy].run(task.begin, task.end);
      });
}

}  // namespace dtk
