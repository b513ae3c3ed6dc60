// A first order of tasks: ranks decide as they come free, by a fixed policy, within their memory.
#pragma once

#include "problem.hpp"
#include "random.hpp"

namespace dtk::scheduling {

struct Policy {
  // While fewer micro-batches than this share (in thousandths) of the memory limit are held, a forward goes
  // before an input gradient.
  int32_t forward_first = 0;
  // Of several forwards that could run, the one of the deepest stage; otherwise of the shallowest.
  bool deepest_forward = true;
  // A weight gradient may delay an input that is known to arrive by this many thousandths of its own time.
  int32_t weight_grad_overrun = 1000;
  // Forwards stop at this share of the memory limit, in thousandths.
  int32_t memory_share = 1000;
  // This share of the decisions, in thousandths, is taken by lot.
  int32_t random_share = 0;
};

// The part of an order that a run begins with: for each rank how many of its tasks.
struct Prefix {
  const Order& order;
  std::vector<int32_t> lengths;
};

// Any policy ends with all tasks done: a forward is admitted only if every micro-batch that has begun can
// still be finished in turn (the banker's rule).
Order greedy_order(const Problem& problem, const Policy& policy, Random& random,
                   const Prefix* prefix = nullptr);

}  // namespace dtk::scheduling
