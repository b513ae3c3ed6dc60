// Tables of tasks by something else: who follows a task, who runs on a resource.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "event_core.hpp"

namespace dtk::simulation {

// Lists one after another: list i is values[offsets[i]] to values[offsets[i + 1]].
struct Lists {
  std::vector<std::int64_t> offsets;
  std::vector<std::int32_t> values;

  std::span<const std::int32_t> operator[](std::int64_t index) const {
    const auto* first = values.data();
    return {first + offsets[index], first + offsets[index + 1]};
  }
};

// The tasks that wait for each task.
Lists successors(const TaskGraph& graph);

// The tasks of each resource, by position. Throws std::invalid_argument if two share one.
Lists tasks_of_resources(const TaskGraph& graph);

}  // namespace dtk::simulation
