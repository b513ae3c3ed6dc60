#include "worker_pool.hpp"

#include <stdexcept>
#include <utility>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace dtk {
namespace {

// While it lives, this thread and those it starts get no signals: they are for the interpreter's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Job::Job(std::int64_t num_tasks, Task task)
    : task_(std::move(task)), num_tasks_(num_tasks), process_(getpid()), num_unfinished_(num_tasks) {}

bool Job::done() const {
  const std::lock_guard lock(mutex_);
  return num_unfinished_ == 0;
}

bool Job::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, time, [this] { return num_unfinished_ == 0; });
}

void Job::rethrow_error() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void Job::run_task(std::int64_t index, Scratch& scratch) {
  std::exception_ptr error;
  try {
    task_(index, scratch);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (error && !error_) error_ = error;
  if (--num_unfinished_ == 0) finished_.notify_all();  // under the lock: the waiter may free the job at once
}

WorkerPool::WorkerPool(int num_threads) : state_(std::make_unique<State>()), process_(getpid()) {
  const SignalsBlocked blocked;
  for (int index = 0; index < num_threads; ++index) {
    try {
      state_->threads.emplace_back([&state = *state_] { work(state); });
    } catch (...) {
      close();
      throw;
    }
  }
}

WorkerPool::~WorkerPool() { close(); }

void WorkerPool::submit(std::shared_ptr<Job> job) {
  if (process_ != getpid()) throw std::runtime_error("these workers belong to the process before the fork");
  const std::lock_guard lock(state_->mutex);
  if (state_->closing) throw std::runtime_error("these workers are closed");
  if (job->num_tasks_ == 0) return;
  state_->jobs.push_back(std::move(job));
  state_->work.notify_all();
}

void WorkerPool::close() {
  if (process_ != getpid()) {
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    state_->work.notify_all();
  }
  const std::lock_guard lock(state_->join_mutex);
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
}

void WorkerPool::work(State& state) {
  Scratch scratch;
  std::unique_lock lock(state.mutex);
  while (true) {
    state.work.wait(lock, [&state] { return state.closing || !state.jobs.empty(); });
    if (state.jobs.empty()) return;  // closing, and all work is taken
    const std::shared_ptr<Job> job = state.jobs.front();
    const std::int64_t task = job->next_task_++;
    if (job->next_task_ == job->num_tasks_) state.jobs.pop_front();
    lock.unlock();
    job->run_task(task, scratch);
    lock.lock();
  }
}

}  // namespace dtk
