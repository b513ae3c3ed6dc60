// The times that an order of tasks leads to: every rank runs its list in order, each task as early as it can.
#pragma once

#include "problem.hpp"

namespace dtk::scheduling {

class Evaluator {
 public:
  explicit Evaluator(const Problem& problem);

  // False if the ranks wait for each other in a circle.
  bool evaluate(const Order& order, Times& times);

 private:
  void produce(int32_t task, int64_t end, Times& times);

  const Problem& problem_;
  std::vector<int64_t> free_, link_free_;
  std::vector<int32_t> next_, waiting_;
  std::vector<int32_t> consumer_;        // by task: the task that takes its output on another stage, or -1
  std::vector<int64_t> consumer_delay_;  // by task: the transfer's time
  std::vector<int32_t> consumer_link_;   // by task: -1 where the output stays on its rank
  std::vector<int32_t> producer_;
};

// The largest memory that the list of one rank holds, and whether it stays within the limit.
bool fits_memory(const Problem& problem, int32_t rank, const std::vector<int32_t>& tasks);

}  // namespace dtk::scheduling
