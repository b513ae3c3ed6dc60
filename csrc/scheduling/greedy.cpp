#include "greedy.hpp"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

namespace dtk::scheduling {
namespace {

constexpr int64_t kNever = INT64_MAX;

// What every rank has done so far, and what is on its way to it.
class Run {
 public:
  Run(const Problem& problem, const Policy& policy, Random& random, const Prefix* prefix)
      : problem_(problem), policy_(policy), random_(random), prefix_(prefix) {
    for (auto& done : done_) done.assign(problem.num_stages, 0);
    arrival_.assign(problem.num_tasks(), kNever);
    order_.resize(problem.num_ranks);
    stages_.resize(problem.num_ranks);
    held_.assign(problem.num_ranks, 0);
    free_at_.assign(problem.num_ranks, 0);
    link_free_.assign(problem.num_links, 0);
    for (int32_t s = 0; s < problem.num_stages; ++s) stages_[problem.rank_of_stage[s]].push_back(s);
    for (int32_t m = 0; m < problem.num_microbatches; ++m) arrival_[problem.task(kForward, 0, m)] = 0;
  }

  Order run() {
    for (int32_t r = 0; r < problem_.num_ranks; ++r) events_.emplace(0, r);
    while (!events_.empty()) {
      const auto [now, rank] = events_.top();
      events_.pop();
      if (free_at_[rank] <= now) decide(rank, now);
    }
    return std::move(order_);
  }

 private:
  // The next task of a kind on a stage, or -1 when the rank has no more or must do another first.
  int32_t next(Kind kind, int32_t stage) const {
    const int32_t m = done_[kind][stage];
    if (m == problem_.num_microbatches) return -1;
    if (kind != kForward && m >= done_[kind - 1][stage]) return -1;
    return problem_.task(kind, stage, m);
  }

  bool can_finish_after(int32_t rank, int32_t stage) const {
    const int64_t limit = problem_.memory_limit[rank];
    const int64_t after = held_[rank] + problem_.activation_bytes[stage];
    if (after > limit) return false;
    int32_t first = problem_.num_microbatches, last = 0;
    for (const int32_t s : stages_[rank]) {
      first = std::min(first, done_[kWeightGrad][s]);
      last = std::max(last, done_[kForward][s] + (s == stage));
    }
    int64_t available = limit - after;
    for (int32_t m = first; m < last; ++m) {
      const auto [needed, holds] = to_finish(rank, m, stage);
      if (needed > available) return false;
      available += holds;
    }
    return true;
  }

  // What micro-batch m still needs beyond what it holds, if from now on it had the rank to itself: its
  // missing forwards, then I and W from the deepest stage up. `begun` is the stage whose forward is about to
  // run.
  std::pair<int64_t, int64_t> to_finish(int32_t rank, int32_t m, int32_t begun) const {
    const auto& stages = stages_[rank];
    int64_t more = 0, holds = 0;
    for (const int32_t s : stages) {
      if (m >= done_[kForward][s] + (s == begun)) {
        more += problem_.activation_bytes[s];
      } else if (m >= done_[kInputGrad][s]) {
        holds += problem_.activation_bytes[s];
      } else if (m >= done_[kWeightGrad][s]) {
        holds += problem_.weight_grad_bytes[s];
      }
    }
    int64_t needed = more;
    for (auto s = stages.rbegin(); s != stages.rend(); ++s) {
      if (m < done_[kWeightGrad][*s]) continue;
      const int64_t later = problem_.weight_grad_bytes[*s];
      if (m >= done_[kInputGrad][*s]) more += later - problem_.activation_bytes[*s];
      needed = std::max(needed, more);
      more -= later;
    }
    return {needed, holds};
  }

  int32_t ready_forward(int32_t rank, int64_t now) const {
    int32_t found = -1;
    const int64_t cap = problem_.memory_limit[rank] / 1000 * policy_.memory_share +
                        problem_.memory_limit[rank] % 1000 * policy_.memory_share / 1000;
    bool nothing_begun = held_[rank] == 0;
    for (const int32_t s : stages_[rank]) {
      const int32_t task = next(kForward, s);
      if (task < 0 || arrival_[task] > now) continue;
      // The share caps the first stage of a rank alone: deeper stages lead out of the memory that is held.
      const bool first = s == stages_[rank].front();
      if (first && !nothing_begun && held_[rank] + problem_.activation_bytes[s] > cap) continue;
      if (!can_finish_after(rank, s)) continue;
      if (found < 0 || policy_.deepest_forward) found = task;
    }
    return found;
  }

  int32_t ready_input_grad(int32_t rank, int64_t now) const {
    int32_t found = -1;
    for (const int32_t s : stages_[rank]) {
      const int32_t task = next(kInputGrad, s);
      if (task < 0 || arrival_[task] > now) continue;
      // What it leaves for the weight gradient may be more than what it frees.
      if (held_[rank] + problem_.memory_at_end(task) <= problem_.memory_limit[rank])
        found = task;  // the deepest
    }
    return found;
  }

  int32_t ready_weight_grad(int32_t rank) const {
    int32_t found = -1;
    for (const int32_t s : stages_[rank]) {
      const int32_t task = next(kWeightGrad, s);
      if (task >= 0) found = task;
    }
    return found;
  }

  // When the next message that is under way arrives here.
  int64_t next_arrival(int32_t rank, int64_t now) const {
    int64_t soonest = kNever;
    for (const int32_t s : stages_[rank]) {
      for (const Kind kind : {kForward, kInputGrad}) {
        const int32_t task = next(kind, s);
        if (task >= 0 && arrival_[task] > now) soonest = std::min(soonest, arrival_[task]);
      }
    }
    return soonest;
  }

  void decide(int32_t rank, int64_t now) {
    if (prefix_ && int32_t(order_[rank].size()) < prefix_->lengths[rank]) {
      const int32_t task = prefix_->order[rank][order_[rank].size()];
      if (problem_.kind(task) == kWeightGrad || arrival_[task] <= now) start(rank, task, now);
      return;
    }
    const int32_t forward = ready_forward(rank, now), input = ready_input_grad(rank, now);
    const int64_t threshold = problem_.memory_limit[rank] / 1000 * policy_.forward_first;
    if (policy_.random_share > 0 && random_.below(1000) < policy_.random_share) {
      const bool may_wait = next_arrival(rank, now) != kNever;
      const int32_t drawn[] = {forward, input, ready_weight_grad(rank)};
      const int32_t lot = random_.below(may_wait ? 4 : 3);
      if (lot == 3) return;
      if (drawn[lot] >= 0) return start(rank, drawn[lot], now);
    }
    int32_t chosen = input;
    if (forward >= 0 && (input < 0 || held_[rank] < threshold)) chosen = forward;
    if (chosen < 0) {
      const int32_t weight = ready_weight_grad(rank);
      if (weight < 0) return;  // an arrival wakes it
      const int64_t time = problem_.time(weight), arrival = next_arrival(rank, now);
      if (arrival != kNever && now + time - arrival > time / 1000 * policy_.weight_grad_overrun &&
          policy_.weight_grad_overrun < 1000) {
        return;
      }
      chosen = weight;
    }
    start(rank, chosen, now);
  }

  void start(int32_t rank, int32_t task, int64_t now) {
    const Kind kind = problem_.kind(task);
    const int32_t stage = problem_.stage(task), m = problem_.microbatch(task);
    const int64_t end = now + problem_.time(task);
    order_[rank].push_back(task);
    ++done_[kind][stage];
    // The change at the end counts at once: nothing else begins on this rank before the end.
    held_[rank] += problem_.memory_at_start(task) + problem_.memory_at_end(task);
    free_at_[rank] = end;
    events_.emplace(end, rank);
    if (kind == kForward && stage + 1 < problem_.num_stages) {
      deliver(problem_.task(kForward, stage + 1, m), end, problem_.activation_transfer[stage],
              problem_.activation_link[stage]);
    } else if (kind == kForward) {
      arrival_[problem_.task(kInputGrad, stage, m)] = end;
    } else if (kind == kInputGrad && stage > 0) {
      deliver(problem_.task(kInputGrad, stage - 1, m), end, problem_.gradient_transfer[stage],
              problem_.gradient_link[stage]);
    }
  }

  void deliver(int32_t task, int64_t end, int64_t delay, int32_t link) {
    if (link < 0) {
      arrival_[task] = end;
      return;
    }
    link_free_[link] = std::max(link_free_[link], end) + delay;
    arrival_[task] = link_free_[link];
    events_.emplace(arrival_[task], problem_.rank(task));
  }

  const Problem& problem_;
  const Policy& policy_;
  Random& random_;
  const Prefix* prefix_;
  std::vector<int32_t> done_[kNumKinds];  // by stage
  std::vector<int64_t> arrival_;          // by task
  std::vector<std::vector<int32_t>> stages_;
  std::vector<int64_t> held_, free_at_, link_free_;
  Order order_;
  std::priority_queue<std::tuple<int64_t, int32_t>, std::vector<std::tuple<int64_t, int32_t>>, std::greater<>>
      events_;
};

}  // namespace

Order greedy_order(const Problem& problem, const Policy& policy, Random& random, const Prefix* prefix) {
  return Run(problem, policy, random, prefix).run();
}

}  // namespace dtk::scheduling
