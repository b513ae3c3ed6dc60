// When each task of a graph starts, under one rule for ties, whatever the order in which tasks are numbered.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace dtk::simulation {

// dtk.simulation.graph.TaskGraph, which has checked it: indices are in range, durations are not negative.
struct TaskGraph {
  std::span<const std::int64_t> durations;
  std::span<const std::int32_t> resources;  // -1: none, the task runs as soon as it is ready
  std::span<const std::int64_t> positions;  // on its resource, distinct there
  std::span<const std::int64_t> predecessor_offsets;
  std::span<const std::int32_t> predecessors;
  std::span<const std::uint8_t>
      first_ready;  // one a resource: 0 runs its tasks by position, 1 as they get ready

  std::int64_t num_tasks() const { return static_cast<std::int64_t>(durations.size()); }
  std::int64_t num_resources() const { return static_cast<std::int64_t>(first_ready.size()); }
};

// Writes the start of each task, -1 for those that wait for ever. Linear in tasks and edges where all
// resources run by position. `poll` is called once in a while and may throw. Throws std::overflow_error where
// a time does not fit, std::invalid_argument where two tasks share a position on a resource.
void simulate(const TaskGraph& graph, std::span<std::int64_t> starts, const std::function<void()>& poll);

}  // namespace dtk::simulation
