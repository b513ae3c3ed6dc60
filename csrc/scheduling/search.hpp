// From a few orders to a better one: late acceptance on moves along the critical path.
#pragma once

#include <functional>

#include "problem.hpp"

namespace dtk::scheduling {

struct SearchOptions {
  int64_t lower_bound = 0;      // stop where it is reached
  int64_t max_evaluations = 0;  // in all
  uint64_t seed = 0;
};

struct SearchResult {
  Order order;
  int64_t makespan = 0;
  int64_t evaluations = 0;
  bool stopped = false;
};

// Improves the best of `starts` (each within the memory limit, none of which waits in a circle).
// Reproducible: integers only, and the seed alone decides. Where `should_stop`, which is asked some times a
// second, says so, it ends early with what it has.
SearchResult search(const Problem& problem, const std::vector<Order>& starts, const SearchOptions& options,
                    const std::function<bool()>& should_stop);

}  // namespace dtk::scheduling
