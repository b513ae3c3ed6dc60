// One submitted piece of work, cut into tasks that threads claim.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include <sys/types.h>

#include "scratch.hpp"

namespace dtk {

// Tasks come in sequences of equal length; task t of sequence s has the index s * tasks_per_sequence + t.
struct TaskCounts {
  std::int64_t num_sequences, tasks_per_sequence;

  std::int64_t total() const { return num_sequences * tasks_per_sequence; }
};

// May be waited for by any number of threads.
class Job {
 public:
  using Task = std::function<void(std::int64_t index, Scratch& scratch)>;
  using Stop = std::function<bool()>;

  Job(TaskCounts counts, Task task);

  std::int64_t num_tasks() const { return counts_.total(); }
  // The process that may wait for the job: a forked child has none of the threads.
  pid_t process() const { return process_; }

  // Runs tasks until every place is drawn. At most `threads_per_sequence` threads work on one sequence at a
  // time; they take up the sequences in order.
  void work(std::int64_t threads_per_sequence, Scratch& scratch);
  // Runs tasks that nobody has claimed, whoever has places; returns whether none is left. `stop` is asked
  // before each: as no place is drawn, those who work find all that this thread leaves.
  bool help(Scratch& scratch, const Stop& stop);

  bool done() const { return num_unfinished_.load(std::memory_order_acquire) == 0; }
  // Returns whether the job ended within that time.
  bool wait_for(std::chrono::milliseconds time) const;
  // Throws what a task threw, if one did: of several, the one with the lowest index. Call when done.
  void rethrow_error() const;

 private:
  bool run_next_task(std::int64_t sequence, Scratch& scratch);
  void run_task(std::int64_t index, Scratch& scratch);
  void keep_error(std::int64_t index, std::exception_ptr error);

  const TaskCounts counts_;
  const pid_t process_;
  Task task_;
  // Counts up through the places of all sequences, `threads_per_sequence` each: whoever draws one works
  // there.
  std::atomic<std::int64_t> next_place_{0};
  std::unique_ptr<std::atomic<std::int64_t>[]> next_task_;  // of each sequence
  std::atomic<std::int64_t> num_unfinished_;
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  std::exception_ptr error_;  // guarded by mutex_, as is its task's index
  std::int64_t error_index_ = 0;
};

}  // namespace dtk
