#include "evaluate.hpp"

#include <algorithm>

namespace dtk::scheduling {

Evaluator::Evaluator(const Problem& problem) : problem_(problem) {
  const int32_t last = problem.num_stages - 1;
  consumer_.assign(problem.num_tasks(), -1);
  producer_.assign(problem.num_tasks(), -1);
  consumer_delay_.assign(problem.num_tasks(), 0);
  consumer_link_.assign(problem.num_tasks(), -1);
  auto connect = [&](int32_t from, int32_t to, int64_t delay, int32_t link) {
    consumer_[from] = to;
    producer_[to] = from;
    consumer_delay_[from] = delay;
    consumer_link_[from] = link;
  };
  for (int32_t s = 0; s <= last; ++s) {
    for (int32_t m = 0; m < problem.num_microbatches; ++m) {
      const int32_t forward = problem.task(kForward, s, m), input = problem.task(kInputGrad, s, m);
      if (s < last) {
        connect(forward, problem.task(kForward, s + 1, m), problem.activation_transfer[s],
                problem.activation_link[s]);
      } else {
        connect(forward, input, 0, -1);
      }
      if (s > 0) {
        connect(input, problem.task(kInputGrad, s - 1, m), problem.gradient_transfer[s],
                problem.gradient_link[s]);
      }
    }
  }
}

void Evaluator::produce(int32_t task, int64_t end, Times& times) {
  const int32_t to = consumer_[task];
  if (to < 0) return;
  if (consumer_link_[task] < 0) {
    times.arrival[to] = end;
    return;
  }
  int64_t& link = link_free_[consumer_link_[task]];
  link = std::max(link, end) + consumer_delay_[task];
  times.arrival[to] = link;
}

bool Evaluator::evaluate(const Order& order, Times& times) {
  const int32_t num_ranks = problem_.num_ranks;
  times.start.resize(problem_.num_tasks());
  times.end.resize(problem_.num_tasks());
  times.arrival.assign(problem_.num_tasks(), -1);
  times.input_producer = producer_;
  times.makespan = 0;
  free_.assign(num_ranks, 0);
  link_free_.assign(problem_.num_links, 0);
  next_.assign(num_ranks, 0);
  waiting_.clear();
  for (int32_t r = num_ranks - 1; r >= 0; --r) waiting_.push_back(r);
  size_t done = 0, total = 0;
  for (const auto& list : order) total += list.size();
  while (!waiting_.empty()) {
    const int32_t rank = waiting_.back();
    waiting_.pop_back();
    const auto& list = order[rank];
    while (next_[rank] < int32_t(list.size())) {
      const int32_t task = list[next_[rank]];
      const int64_t arrival = producer_[task] < 0 ? 0 : times.arrival[task];
      if (arrival < 0) break;
      const int64_t start = std::max(free_[rank], arrival), end = start + problem_.time(task);
      times.start[task] = start;
      times.end[task] = free_[rank] = end;
      ++next_[rank];
      ++done;
      produce(task, end, times);
      const int32_t to = consumer_[task];
      if (to >= 0) {
        const int32_t peer = problem_.rank(to);
        if (peer != rank && next_[peer] < int32_t(order[peer].size()) && order[peer][next_[peer]] == to) {
          waiting_.push_back(peer);
        }
      }
    }
    times.makespan = std::max(times.makespan, free_[rank]);
  }
  return done == total;
}

bool fits_memory(const Problem& problem, int32_t rank, const std::vector<int32_t>& tasks) {
  int64_t held = 0;
  for (const int32_t task : tasks) {
    held += problem.memory_at_start(task);
    if (held > problem.memory_limit[rank]) return false;
    held += problem.memory_at_end(task);
    if (held > problem.memory_limit[rank]) return false;
  }
  return true;
}

}  // namespace dtk::scheduling
