#include "job.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <unistd.h>

namespace dtk {
namespace {

// How long a waiter polls before it goes to sleep. A small job ends within it, which saves the wake-up (20 us
// or more); its core would stand idle or go to a worker, so that it must stay short.
constexpr std::chrono::microseconds kPollingTime{30};

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool poll(const Job& job) {
  const auto end = std::chrono::steady_clock::now() + kPollingTime;
  do {
    for (int count = 0; count < 16; ++count) {
      if (job.done()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

Job::Job(TaskCounts counts, Task task)
    : counts_(counts),
      process_(getpid()),
      task_(std::move(task)),
      next_task_(new std::atomic<std::int64_t>[static_cast<std::size_t>(counts.num_sequences)]),
      num_unfinished_(counts.total()) {
  for (std::int64_t s = 0; s < counts_.num_sequences; ++s) next_task_[static_cast<std::size_t>(s)].store(0);
}

void Job::work(std::int64_t threads_per_sequence, Scratch& scratch) {
  const std::int64_t places = std::min(threads_per_sequence, counts_.tasks_per_sequence);
  while (true) {
    const std::int64_t sequence = next_place_.fetch_add(1, std::memory_order_relaxed) / places;
    if (sequence >= counts_.num_sequences) return;
    while (run_next_task(sequence, scratch)) {
    }
  }
}

bool Job::help(Scratch& scratch, const Stop& stop) {
  for (std::int64_t sequence = 0; sequence < counts_.num_sequences; ++sequence) {
    do {
      if (stop()) return false;
    } while (run_next_task(sequence, scratch));
  }
  return true;
}

bool Job::run_next_task(std::int64_t sequence, Scratch& scratch) {
  std::atomic<std::int64_t>& next_task = next_task_[static_cast<std::size_t>(sequence)];
  const std::int64_t task = next_task.fetch_add(1, std::memory_order_relaxed);
  if (task >= counts_.tasks_per_sequence) return false;
  run_task(sequence * counts_.tasks_per_sequence + task, scratch);
  return true;
}

void Job::run_task(std::int64_t index, Scratch& scratch) {
  try {
    task_(index, scratch);
  } catch (...) {
    keep_error(index, std::current_exception());
  }
  if (num_unfinished_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  {
    const std::lock_guard lock(mutex_);  // a waiter is either before its check or asleep
    finished_.notify_all();
  }
  task_ = nullptr;  // no thread calls it any more; the Job itself may be kept for long
}

void Job::keep_error(std::int64_t index, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error_ && error_index_ < index) return;
  error_ = std::move(error);
  error_index_ = index;
}

bool Job::wait_for(std::chrono::milliseconds time) const {
  if (poll(*this)) return true;
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, time, [this] { return done(); });
}

void Job::rethrow_error() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace dtk
