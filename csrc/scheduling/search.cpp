#include "search.hpp"

#include <algorithm>
#include <chrono>

#include "evaluate.hpp"
#include "greedy.hpp"

namespace dtk::scheduling {
namespace {

// What late acceptance compares: the makespan first, then how early the ranks end in all.
struct Cost {
  int64_t makespan = INT64_MAX;
  uint64_t ends = UINT64_MAX;  // a sum over ranks may leave 63 bits
  bool operator<=(const Cost& other) const {
    return makespan != other.makespan ? makespan < other.makespan : ends <= other.ends;
  }
};

class Search {
 public:
  Search(const Problem& problem, const SearchOptions& options, const std::function<bool()>& should_stop)
      : problem_(problem),
        options_(options),
        should_stop_(should_stop),
        evaluator_(problem),
        random_(options.seed),
        next_question_(Clock::now() + kBetweenQuestions) {}

  SearchResult run(const std::vector<Order>& starts) {
    for (const Order& start : starts) consider(start);
    if (starts.empty() || best_.makespan == INT64_MAX) return result();
    for (int32_t round = 0; !finished(); ++round) {
      if (round < int32_t(starts.size())) {
        climb(starts[round]);
      } else if (round % 2 == 0) {
        climb(rollout());
      } else {
        climb(shaken());
      }
    }
    return result();
  }

 private:
  static constexpr int32_t kRollouts = 32;

  // The best of several random ends to the best order's beginning.
  Order rollout() {
    Order found;
    Cost least;
    bool any = false;
    for (int32_t i = 0; i < kRollouts && !finished(); ++i) {
      cost(best_order_);
      const int64_t cut = int64_t(random_.next() % uint64_t(times_.makespan + 1));
      Prefix prefix{best_order_, {}};
      for (const auto& list : best_order_) {
        const auto begun = [&](int32_t task) { return times_.start[task] < cut; };
        prefix.lengths.push_back(
            int32_t(std::partition_point(list.begin(), list.end(), begun) - list.begin()));
      }
      const int32_t shares[] = {0, 50, 150, 400};
      Policy policy{random_.below(2) * random_.below(1000), random_.below(4) > 0, random_.below(1001),
                    random_.below(2) ? 1000 : 300 + random_.below(700), shares[random_.below(4)]};
      Order order = greedy_order(problem_, policy, random_, &prefix);
      size_t tasks = 0;
      for (const auto& list : order) tasks += list.size();
      if (tasks != size_t(problem_.num_tasks())) continue;
      const Cost now = consider(order);
      if (!any || (now <= least)) {
        any = true;
        least = now;
        found = std::move(order);
      }
    }
    return any ? found : best_order_;
  }

  using Clock = std::chrono::steady_clock;
  static constexpr auto kBetweenQuestions = std::chrono::milliseconds(50);

  SearchResult result() { return {best_order_, best_.makespan, evaluations_, stopped_}; }

  bool finished() {
    if (best_.makespan <= options_.lower_bound || evaluations_ >= options_.max_evaluations) return true;
    if (!stopped_ && Clock::now() >= next_question_) {
      next_question_ = Clock::now() + kBetweenQuestions;
      stopped_ = should_stop_();
    }
    return stopped_;
  }

  Cost cost(const Order& order) {
    ++evaluations_;
    if (!evaluator_.evaluate(order, times_)) return {};
    uint64_t ends = 0;
    for (const auto& list : order) {
      if (!list.empty()) ends += uint64_t(times_.end[list.back()]);
    }
    return {times_.makespan, ends};
  }

  Cost consider(const Order& order) {
    const Cost found = cost(order);
    if (found.makespan < best_.makespan) {
      best_ = found;
      best_order_ = order;
    }
    return found;
  }

  // The best order after a few random moves.
  Order shaken() {
    order_ = best_order_;
    place();
    for (int32_t moves = 4 + random_.below(16); moves > 0; --moves) {
      const int32_t rank = random_.below(problem_.num_ranks), length = int32_t(order_[rank].size());
      if (length < 2) continue;
      const int32_t from = random_.below(length), reach = 1 + random_.below(8);
      before_ = order_[rank];
      if (!move(rank, from, std::clamp(from + random_.below(2 * reach + 1) - reach, 0, length - 1)) ||
          cost(order_).makespan == INT64_MAX) {
        order_[rank] = before_;
      }
    }
    return order_;
  }

  // Late acceptance hill climbing (Burke and Bykov 2017), until nothing has become better for a while.
  void climb(const Order& start) {
    order_ = start;
    place();
    Cost current = consider(order_);
    if (current.makespan == INT64_MAX) return;
    critical_path();
    std::vector<Cost> history(kHistory, current);
    Cost least = current;
    int64_t last_better = evaluations_;
    const int64_t patience = 1000 + 20 * int64_t(problem_.num_tasks());
    for (int64_t step = 0; !finished() && evaluations_ - last_better < patience; ++step) {
      int32_t rank, from, to;
      propose(rank, from, to);
      before_ = order_[rank];
      if (!move(rank, from, to)) {
        order_[rank] = before_;
        if (++refused_ % 64 == 0) ++evaluations_;  // so that a search without moves ends, too
        continue;
      }
      const Cost found = cost(order_);
      Cost& late = history[size_t(step % kHistory)];
      if (found.makespan != INT64_MAX && (found <= current || found <= late)) {
        current = found;
        if (!(least <= found)) {
          least = found;
          last_better = evaluations_;
        }
        place_rank(rank);
        critical_path();
        if (found.makespan < best_.makespan) {
          best_ = found;
          best_order_ = order_;
        }
      } else {
        order_[rank] = before_;
      }
      if (current <= late) late = current;
    }
  }

  void place() {
    position_.resize(problem_.num_tasks());
    for (int32_t r = 0; r < problem_.num_ranks; ++r) place_rank(r);
  }
  void place_rank(int32_t rank) {
    for (size_t i = 0; i < order_[rank].size(); ++i) position_[order_[rank][i]] = int32_t(i);
  }

  // Tasks that end when the last rank does, back through whatever each waited for. Uses the times of the last
  // evaluation, which must have been that of order_.
  void critical_path() {
    path_.clear();
    int32_t task = -1;
    for (const auto& list : order_) {
      if (!list.empty() && times_.end[list.back()] == times_.makespan) task = list.back();
    }
    while (task >= 0) {
      path_.push_back(task);
      const int32_t place = position_[task];
      const int32_t ahead = place > 0 ? order_[problem_.rank(task)][place - 1] : -1;
      const bool rank_was_busy = ahead >= 0 && times_.end[ahead] == times_.start[task];
      const int32_t producer = times_.input_producer[task];
      const bool waited = producer >= 0 && times_.arrival[task] == times_.start[task];
      if (rank_was_busy && waited) {
        task = random_.below(2) ? ahead : producer;
      } else {
        task = rank_was_busy ? ahead : waited ? producer : -1;
      }
    }
  }

  // A task of the critical path, earlier by up to a whole block, or the task before it later.
  void propose(int32_t& rank, int32_t& from, int32_t& to) {
    const int32_t task = path_[random_.below(int32_t(path_.size()))];
    rank = problem_.rank(task);
    const int32_t place = position_[task], length = int32_t(order_[rank].size());
    const int32_t reach = 1 + random_.below(random_.below(4) == 0 ? 3 * problem_.num_ranks + 8 : 3);
    from = place;
    to = random_.below(4) ? std::max(0, place - reach) : std::min(length - 1, place + reach);
    if (random_.below(8) == 0) {  // anywhere: what frees memory is often not on the path
      from = random_.below(length);
      to = std::clamp(from + random_.below(2 * reach + 1) - reach, 0, length - 1);
    }
  }

  // Whether a must come before b on their rank.
  bool ordered(int32_t a, int32_t b) const {
    if (problem_.stage(a) != problem_.stage(b)) return false;
    const Kind first = problem_.kind(a), second = problem_.kind(b);
    return first == second || (first < second && problem_.microbatch(a) <= problem_.microbatch(b));
  }

  bool move(int32_t rank, int32_t from, int32_t to) {
    auto& list = order_[rank];
    const int32_t task = list[from];
    int32_t place = from;
    while (place > to && !ordered(list[place - 1], task)) {
      list[place] = list[place - 1];
      --place;
    }
    while (place < to && !ordered(task, list[place + 1])) {
      list[place] = list[place + 1];
      ++place;
    }
    list[place] = task;
    if (place == from) return false;
    return fits_memory(problem_, rank, list) || (place < from && make_room(rank, place));
  }

  // Brings the next weight gradients to the front of `place` until the memory suffices.
  bool make_room(int32_t rank, int32_t place) {
    auto& list = order_[rank];
    for (int32_t attempt = 0; attempt < 4; ++attempt) {
      int32_t found = -1;
      for (int32_t i = place + 1; i < int32_t(list.size()) && found < 0; ++i) {
        if (problem_.kind(list[i]) != kWeightGrad) continue;
        bool free = true;
        for (int32_t j = place; j < i && free; ++j) free = !ordered(list[j], list[i]);
        if (free) found = i;
      }
      if (found < 0) return false;
      std::rotate(list.begin() + place, list.begin() + found, list.begin() + found + 1);
      ++place;
      if (fits_memory(problem_, rank, list)) return true;
    }
    return false;
  }

  static constexpr int64_t kHistory = 200;

  const Problem& problem_;
  const SearchOptions& options_;
  const std::function<bool()>& should_stop_;
  Evaluator evaluator_;
  Random random_;
  Clock::time_point next_question_;
  bool stopped_ = false;
  Times times_;
  Order order_, best_order_;
  Cost best_;
  std::vector<int32_t> before_, position_, path_;
  int64_t evaluations_ = 0, refused_ = 0;
};

}  // namespace

SearchResult search(const Problem& problem, const std::vector<Order>& starts, const SearchOptions& options,
                    const std::function<bool()>& should_stop) {
  return Search(problem, options, should_stop).run(starts);
}

}  // namespace dtk::scheduling
