// The scheduling problem behind an optimal pipeline: which action each rank runs next, when the actions,
// their times and the memory of each rank are given. Source: zero-bubble pipelines (2401.10241), section 4.
//
// Micro-batches are alike, so the k-th forward of a stage may always be that of micro-batch k, and likewise
// the input and the weight gradients: sorting any schedule so keeps every dependency and every count in
// memory.
#pragma once

#include <cstdint>
#include <vector>

namespace dtk::scheduling {

enum Kind : int32_t { kForward = 0, kInputGrad = 1, kWeightGrad = 2 };
constexpr int32_t kNumKinds = 3;

struct Problem {
  int32_t num_ranks = 0;
  int32_t num_stages = 0;
  int32_t num_microbatches = 0;
  std::vector<int32_t> rank_of_stage;
  std::vector<int64_t> duration[kNumKinds];  // by stage
  std::vector<int64_t> activation_transfer;  // by sending stage; 0 where the next stage is on the same rank
  std::vector<int64_t> gradient_transfer;
  std::vector<int64_t> activation_bytes;   // from the forward's start to the input gradient's end
  std::vector<int64_t> weight_grad_bytes;  // from there to the weight gradient's end
  std::vector<int64_t> memory_limit;       // by rank
  // Directed pairs of ranks that messages pass between, numbered: by sending stage, -1 where there are none.
  std::vector<int32_t> activation_link, gradient_link;
  int32_t num_links = 0;

  int32_t num_tasks() const { return kNumKinds * num_stages * num_microbatches; }
  int32_t task(Kind kind, int32_t stage, int32_t microbatch) const {
    return (kind * num_stages + stage) * num_microbatches + microbatch;
  }
  Kind kind(int32_t task) const { return Kind(task / (num_stages * num_microbatches)); }
  int32_t stage(int32_t task) const { return task / num_microbatches % num_stages; }
  int32_t microbatch(int32_t task) const { return task % num_microbatches; }
  int32_t rank(int32_t task) const { return rank_of_stage[stage(task)]; }
  int64_t time(int32_t task) const { return duration[kind(task)][stage(task)]; }

  // What the task changes in its rank's memory: at its start, and at its end.
  int64_t memory_at_start(int32_t task) const {
    return kind(task) == kForward ? activation_bytes[stage(task)] : 0;
  }
  int64_t memory_at_end(int32_t task) const {
    const int32_t s = stage(task);
    switch (kind(task)) {
      case kForward:
        return 0;
      case kInputGrad:
        return weight_grad_bytes[s] - activation_bytes[s];
      default:
        return -weight_grad_bytes[s];
    }
  }
};

// For each rank its tasks in order.
using Order = std::vector<std::vector<int32_t>>;

struct Times {
  int64_t makespan = 0;
  std::vector<int64_t> start, end;      // by task
  std::vector<int32_t> input_producer;  // by task: the task whose output it takes, or -1
  std::vector<int64_t> arrival;         // by task: when that output is there
};

}  // namespace dtk::scheduling
