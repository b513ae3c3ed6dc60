#include "tables.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dtk::simulation {
namespace {

// Turns counts, kept one place to the right, into the offsets at which the lists start.
void accumulate(std::vector<std::int64_t>& counts) {
  for (std::size_t index = 1; index < counts.size(); ++index) counts[index] += counts[index - 1];
}

}  // namespace

Lists successors(const TaskGraph& graph) {
  const std::int64_t num_tasks = graph.num_tasks();
  Lists lists{std::vector<std::int64_t>(num_tasks + 1), std::vector<std::int32_t>(graph.predecessors.size())};
  for (const std::int32_t predecessor : graph.predecessors) ++lists.offsets[predecessor + 1];
  accumulate(lists.offsets);
  auto next = lists.offsets;
  for (std::int64_t task = 0; task < num_tasks; ++task) {
    for (auto edge = graph.predecessor_offsets[task]; edge < graph.predecessor_offsets[task + 1]; ++edge) {
      lists.values[next[graph.predecessors[edge]]++] = static_cast<std::int32_t>(task);
    }
  }
  return lists;
}

Lists tasks_of_resources(const TaskGraph& graph) {
  const std::int64_t num_resources = graph.num_resources();
  Lists lists{std::vector<std::int64_t>(num_resources + 1), {}};
  for (const std::int32_t resource : graph.resources) {
    if (resource >= 0) ++lists.offsets[resource + 1];
  }
  accumulate(lists.offsets);
  lists.values.resize(lists.offsets.back());
  auto next = lists.offsets;
  for (std::int64_t task = 0; task < graph.num_tasks(); ++task) {
    const auto resource = graph.resources[task];
    if (resource >= 0) lists.values[next[resource]++] = static_cast<std::int32_t>(task);
  }
  const auto before = [&](std::int32_t a, std::int32_t b) { return graph.positions[a] < graph.positions[b]; };
  const auto same = [&](std::int32_t a, std::int32_t b) { return graph.positions[a] == graph.positions[b]; };
  for (std::int64_t resource = 0; resource < num_resources; ++resource) {
    const auto first = lists.values.begin() + lists.offsets[resource];
    const auto last = lists.values.begin() + lists.offsets[resource + 1];
    if (!std::is_sorted(first, last, before)) std::sort(first, last, before);
    if (const auto twice = std::adjacent_find(first, last, same); twice != last) {
      throw std::invalid_argument("two tasks share position " + std::to_string(graph.positions[*twice]) +
                                  " on resource " + std::to_string(resource));
    }
  }
  return lists;
}

}  // namespace dtk::simulation
