#include "jobs.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "attention_split.hpp"

namespace dtk {
namespace {

constexpr std::int64_t kCopyTaskBytes = 256 * 1024;

// An attention call with its own copy of the tables.
class AttentionWork {
 public:
  explicit AttentionWork(const AttentionArguments& a)
      : tables_(copy_tables(a)), split_(with_tables(a, tables_.get())) {}

  TaskCounts task_counts() const { return {split_.num_sequences(), split_.num_tasks_of_sequence()}; }
  void run(std::int64_t index, Scratch& scratch) { split_.run(index, scratch); }

 private:
  static std::int64_t num_entries(const AttentionArguments& a) {
    return a.batch * a.num_groups * a.num_blocks;
  }

  static std::unique_ptr<std::int32_t[]> copy_tables(const AttentionArguments& a) {
    std::unique_ptr<std::int32_t[]> tables(new std::int32_t[static_cast<std::size_t>(2 * num_entries(a))]);
    std::copy_n(a.block_table, num_entries(a), tables.get());
    std::copy_n(a.block_lengths, num_entries(a), tables.get() + num_entries(a));
    return tables;
  }

  static AttentionArguments with_tables(AttentionArguments a, const std::int32_t* tables) {
    a.block_table = tables;
    a.block_lengths = tables + num_entries(a);
    return a;
  }

  const std::unique_ptr<std::int32_t[]> tables_;
  AttentionSplit split_;
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

std::shared_ptr<Job> attention_job(const AttentionArguments& arguments) {
  const auto work = std::make_shared<AttentionWork>(arguments);
  return std::make_shared<Job>(work->task_counts(),
                               [work](std::int64_t task, Scratch& scratch) { work->run(task, scratch); });
}

std::shared_ptr<Job> copy_job(std::vector<BlockCopy> copies) {
  auto tasks = split(copies);
  const auto num_tasks = static_cast<std::int64_t>(tasks.size());
  return std::make_shared<Job>(
      TaskCounts{num_tasks, 1},
      [copies = std::move(copies), tasks = std::move(tasks)](std::int64_t index, Scratch&) {
        const CopyTask& task = tasks[static_cast<std::size_t>(index)];
        copies[task.copy].run(task.begin, task.end);
      });
}

}  // namespace dtk
