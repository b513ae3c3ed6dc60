// Threads that run jobs in the order of submission, each job split into tasks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "scratch.hpp"

namespace dtk {

class WorkerPool;

// Tasks 0..num_tasks-1 of one submitted piece of work. May be waited for by any number of threads.
class Job {
 public:
  using Task = std::function<void(std::int64_t index, Scratch& scratch)>;

  Job(std::int64_t num_tasks, Task task);

  bool done() const;
  // Returns whether the job ended within that time.
  bool wait_for(std::chrono::milliseconds time) const;
  // Throws what a task threw, if one did. Call when done.
  void rethrow_error() const;
  // The process that may wait for the job: a forked child has none of the threads.
  pid_t process() const { return process_; }

 private:
  friend class WorkerPool;
  void run_task(std::int64_t index, Scratch& scratch);

  const Task task_;
  const std::int64_t num_tasks_;
  const pid_t process_;
  std::int64_t next_task_ = 0;  // guarded by the pool's mutex
  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  std::int64_t num_unfinished_;
  std::exception_ptr error_;
};

class WorkerPool {
 public:
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Throws std::runtime_error after close() and in a forked child.
  void submit(std::shared_ptr<Job> job);
  // Finishes all submitted jobs and ends the threads. May be called again, and from several threads.
  void close();

 private:
  // What the threads share. A forked child leaks its copy: no thread is left there that could be joined, and
  // destroying a condition variable that had waiters would block.
  struct State {
    std::mutex mutex;
    std::condition_variable work;
    std::deque<std::shared_ptr<Job>> jobs;
    bool closing = false;
    std::mutex join_mutex;
    std::vector<std::thread> threads;
  };

  static void work(State& state);

  std::unique_ptr<State> state_;
  const pid_t process_;
};

}  // namespace dtk
