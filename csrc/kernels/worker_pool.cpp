#include "worker_pool.hpp"

#include <algorithm>
#include <cstdint>
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
    for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, crash);  // for faulthandler
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

void drop_done(std::vector<std::shared_ptr<Job>>& jobs) {
  std::erase_if(jobs, [](const std::shared_ptr<Job>& job) { return job->done(); });
}

}  // namespace

WorkerPool::WorkerPool(int num_threads, int threads_per_sequence)
    : state_(std::make_unique<State>()), num_threads_(num_threads), process_(getpid()) {
  state_->grouped = threads_per_sequence < num_threads;
  state_->single = num_threads == 1;
  state_->threads_per_sequence = threads_per_sequence;
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
  const std::int64_t num_useful = std::min<std::int64_t>(num_threads_, job->num_tasks());
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->closing) throw std::runtime_error("these workers are closed");
    if (num_useful == 0) return;
    state_->jobs.push_back(std::move(job));
  }
  for (std::int64_t thread = 0; thread < num_useful; ++thread) state_->work.notify_one();
}

void WorkerPool::help(const std::shared_ptr<Job>& job, const Job::Stop& stop) {
  // Leaves whatever happens: Python ends a thread that asks for the interpreter at its end by unwinding it.
  struct Helper {
    State& state;
    const std::shared_ptr<Job>& job;
    bool exhausted;

    ~Helper() {
      const std::lock_guard lock(state.mutex);
      if (exhausted) leave(state, job);
      --state.num_helpers;
      state.helper_left.notify_all();
      state.work.notify_all();
    }
  };
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    drop_done(state.running);
    if (state.grouped || !state.running.empty() || state.jobs.empty() || state.jobs.front() != job) return;
    ++state.num_helpers;
  }
  Helper helper{state, job, false};
  Scratch scratch;
  helper.exhausted = job->help(scratch, stop);
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
  const std::lock_guard join_lock(state_->join_mutex);
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
  std::unique_lock lock(state_->mutex);
  state_->helper_left.wait(lock, [this] { return state_->num_helpers == 0; });
}

void WorkerPool::work(State& state) {
#if defined(__linux__)
  pthread_setname_np(pthread_self(), "dtk-worker");
#endif
  Scratch scratch;
  std::unique_lock lock(state.mutex);
  while (true) {
    // No polling before the sleep: it takes the core from the thread that is about to submit.
    // A single thread does jobs one after the other, so it lets those who took part in the last one end, too.
    state.work.wait(lock, [&state] {
      if (state.single && state.num_helpers > 0 && !state.running.empty()) return false;
      return state.closing || !state.jobs.empty();
    });
    if (state.jobs.empty()) return;  // closing, and all work is taken
    const std::shared_ptr<Job> job = state.jobs.front();
    lock.unlock();
    job->work(state.threads_per_sequence, scratch);
    lock.lock();
    leave(state, job);
  }
}

// Call with the mutex held, when no task of the job is left to claim.
void WorkerPool::leave(State& state, const std::shared_ptr<Job>& job) {
  if (state.jobs.empty() || state.jobs.front() != job) return;
  state.jobs.pop_front();
  state.running.push_back(job);
  drop_done(state.running);
}

}  // namespace dtk
