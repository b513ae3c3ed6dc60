#include "event_core.hpp"

#include <algorithm>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "tables.hpp"

namespace dtk::simulation {
namespace {

constexpr std::int64_t kTasksBetweenPolls = 1 << 18;

// What both ways to run a graph share: how many things each task still waits for.
class Run {
 public:
  Run(const TaskGraph& graph, std::span<std::int64_t> starts, const std::function<void()>& poll)
      : graph_(graph),
        starts_(starts),
        poll_(poll),
        successors_(successors(graph)),
        of_resource_(tasks_of_resources(graph)),
        num_missing_(graph.num_tasks()),
        next_(graph.num_tasks(), -1) {
    std::fill(starts.begin(), starts.end(), -1);
    for (std::int64_t task = 0; task < graph.num_tasks(); ++task) {
      const auto count = graph.predecessor_offsets[task + 1] - graph.predecessor_offsets[task];
      num_missing_[task] = static_cast<std::int32_t>(count);
    }
    for (std::int64_t resource = 0; resource < graph.num_resources(); ++resource) {
      if (!graph.first_ready[resource]) chain(of_resource_[resource]);
    }
  }

 protected:
  // Notes the start of a task and returns its end.
  std::int64_t begin(std::int32_t task, std::int64_t now) {
    if (++num_begun_ % kTasksBetweenPolls == 0) poll_();
    starts_[task] = now;
    std::int64_t end;
    if (__builtin_add_overflow(now, graph_.durations[task], &end)) {
      throw std::overflow_error("a task ends after 2**63 - 1 ns");
    }
    return end;
  }

  // Calls ready(successor) for each task that waited for this one alone.
  template <typename Ready>
  void finish(std::int32_t task, const Ready& ready) {
    for (const std::int32_t successor : successors_[task]) {
      if (--num_missing_[successor] == 0) ready(successor);
    }
    if (const auto next = next_[task]; next >= 0 && --num_missing_[next] == 0) ready(next);
  }

  const TaskGraph& graph_;
  std::span<std::int64_t> starts_;
  const std::function<void()>& poll_;
  const Lists successors_, of_resource_;
  std::vector<std::int32_t> num_missing_;
  std::vector<std::int32_t> next_;  // on a resource that runs by position; -1 for none
  std::int64_t num_begun_ = 0;

 private:
  void chain(std::span<const std::int32_t> tasks) {
    for (std::size_t index = 1; index < tasks.size(); ++index) {
      next_[tasks[index - 1]] = tasks[index];
      ++num_missing_[tasks[index]];
    }
  }
};

// All orders are known beforehand: the latest end among what a task waits for is its start, and tasks may be
// looked at in any order that respects the edges. No queue of events is needed.
class FixedOrderRun : Run {
 public:
  using Run::Run;

  void operator()() {
    std::vector<std::int64_t> ready_at(graph_.num_tasks());
    std::vector<std::int32_t> ready;
    for (std::int64_t task = 0; task < graph_.num_tasks(); ++task) {
      if (num_missing_[task] == 0) ready.push_back(static_cast<std::int32_t>(task));
    }
    while (!ready.empty()) {
      const auto task = ready.back();
      ready.pop_back();
      const auto end = begin(task, ready_at[task]);
      const auto later = [&](std::int32_t other) { ready_at[other] = std::max(ready_at[other], end); };
      std::ranges::for_each(successors_[task], later);
      if (next_[task] >= 0) later(next_[task]);
      finish(task, [&](std::int32_t other) { ready.push_back(other); });
    }
  }
};

// Time passes from one end of a task to the next. At one time all ends count first, and what they let start
// on resources that run by position, tasks that take no time included; then the first-ready resources choose.
class EventRun : Run {
 public:
  EventRun(const TaskGraph& graph, std::span<std::int64_t> starts, const std::function<void()>& poll)
      : Run(graph, starts, poll), waiting_(graph.num_resources()), busy_(graph.num_resources()) {}

  void operator()() {
    for (std::int64_t task = 0; task < graph_.num_tasks(); ++task) {
      if (num_missing_[task] == 0) ready(static_cast<std::int32_t>(task), 0);
    }
    choose(0);
    while (!ends_.empty()) {
      const auto now = ends_.top().first;
      while (!ends_.empty() && ends_.top().first == now) {
        const auto task = ends_.top().second;
        ends_.pop();
        if (const auto resource = queue_of(task); resource >= 0) {
          busy_[resource] = 0;
          touched_.push_back(resource);
        }
        finish(task, [&](std::int32_t other) { ready(other, now); });
      }
      choose(now);
    }
  }

 private:
  using End = std::pair<std::int64_t, std::int32_t>;                     // time, task
  using Waiting = std::tuple<std::int64_t, std::int64_t, std::int32_t>;  // ready at, position, task
  template <typename Item>
  using Earliest = std::priority_queue<Item, std::vector<Item>, std::greater<>>;

  std::int32_t queue_of(std::int32_t task) const {
    const auto resource = graph_.resources[task];
    return resource >= 0 && graph_.first_ready[resource] ? resource : -1;
  }

  void ready(std::int32_t task, std::int64_t now) {
    const auto resource = queue_of(task);
    if (resource < 0) {
      ends_.emplace(begin(task, now), task);
    } else {
      waiting_[resource].emplace(now, graph_.positions[task], task);
      touched_.push_back(resource);
    }
  }

  void choose(std::int64_t now) {
    for (const auto resource : touched_) {
      if (busy_[resource] || waiting_[resource].empty()) continue;
      const auto task = std::get<2>(waiting_[resource].top());
      waiting_[resource].pop();
      busy_[resource] = 1;
      ends_.emplace(begin(task, now), task);
    }
    touched_.clear();
  }

  Earliest<End> ends_;
  std::vector<Earliest<Waiting>> waiting_;
  std::vector<std::uint8_t> busy_;
  std::vector<std::int32_t> touched_;  // resources that may be able to take a task now
};

}  // namespace

void simulate(const TaskGraph& graph, std::span<std::int64_t> starts, const std::function<void()>& poll) {
  if (std::ranges::any_of(graph.first_ready, [](std::uint8_t value) { return value != 0; })) {
    EventRun(graph, starts, poll)();
  } else {
    FixedOrderRun(graph, starts, poll)();
  }
}

}  // namespace dtk::simulation
