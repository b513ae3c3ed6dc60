// Threads that run jobs in the order of submission.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "job.hpp"

namespace dtk {

class WorkerPool {
 public:
  // At most `threads_per_sequence` threads share one sequence of a job.
  WorkerPool(int num_threads, int threads_per_sequence);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Throws std::runtime_error after close() and in a forked child.
  void submit(std::shared_ptr<Job> job);
  // Lets the calling thread, which has nothing else to do, take part in a job if all earlier ones are done
  // (one thread's jobs are done in order, and stay so). Not if threads are grouped: an outsider would be one
  // thread too many for a sequence. `stop` is asked between tasks.
  void help(const std::shared_ptr<Job>& job, const Job::Stop& stop);
  // Finishes all submitted jobs and ends the threads. May be called again, and from several threads.
  void close();

 private:
  // What the threads share. A forked child leaks its copy: no thread is left there that could be joined, and
  // destroying a condition variable that had waiters would block.
  struct State {
    int threads_per_sequence;
    bool grouped, single;
    int num_helpers = 0;
    std::condition_variable helper_left;
    std::mutex mutex;
    std::condition_variable work;
    std::deque<std::shared_ptr<Job>> jobs;      // with tasks left to claim
    std::vector<std::shared_ptr<Job>> running;  // no task left to claim, some not done
    bool closing = false;
    std::mutex join_mutex;
    std::vector<std::thread> threads;
  };

  static void work(State& state);
  static void leave(State& state, const std::shared_ptr<Job>& job);

  std::unique_ptr<State> state_;
  const int num_threads_;
  const pid_t process_;
};

}  // namespace dtk
