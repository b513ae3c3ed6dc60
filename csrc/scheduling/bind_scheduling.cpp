#include "bind_scheduling.hpp"

#include <pybind11/stl.h>

#include <map>
#include <stdexcept>
#include <utility>

#include "evaluate.hpp"
#include "greedy.hpp"
#include "search.hpp"

namespace py = pybind11;

namespace dtk::scheduling {
namespace {

void require(bool good, const char* what) {
  if (!good) throw std::invalid_argument(what);
}

// Numbers the links in use. A table of all pairs of ranks would grow with their square.
void number_links(Problem& problem) {
  std::map<std::pair<int32_t, int32_t>, int32_t> links;
  const auto link = [&](int32_t from, int32_t to) {
    const int32_t source = problem.rank_of_stage[from], target = problem.rank_of_stage[to];
    if (source == target) return -1;
    return links.try_emplace({source, target}, int32_t(links.size())).first->second;
  };
  problem.activation_link.assign(problem.num_stages, -1);
  problem.gradient_link.assign(problem.num_stages, -1);
  for (int32_t s = 0; s + 1 < problem.num_stages; ++s) {
    problem.activation_link[s] = link(s, s + 1);
    problem.gradient_link[s + 1] = link(s + 1, s);
  }
  problem.num_links = int32_t(links.size());
}

// The Python side has checked everything for its users; this guards the memory of the process.
Problem make_problem(std::vector<int32_t> rank_of_stage, int32_t num_microbatches,
                     std::vector<int64_t> forward, std::vector<int64_t> input_grad,
                     std::vector<int64_t> weight_grad, std::vector<int64_t> activation_transfer,
                     std::vector<int64_t> gradient_transfer, std::vector<int64_t> activation_bytes,
                     std::vector<int64_t> weight_grad_bytes, std::vector<int64_t> memory_limit) {
  Problem problem;
  problem.num_ranks = int32_t(memory_limit.size());
  problem.num_stages = int32_t(rank_of_stage.size());
  problem.num_microbatches = num_microbatches;
  const size_t stages = rank_of_stage.size();
  require(stages >= 1 && problem.num_ranks >= 1 && num_microbatches >= 1, "a size is below 1");
  // So that three times as many tasks and their messages, each below 2**40, add up to less than 2**63.
  require(stages * uint64_t(num_microbatches) < (uint64_t(1) << 20), "too many tasks");
  for (const int32_t rank : rank_of_stage) require(rank >= 0 && rank < problem.num_ranks, "no such rank");
  for (const auto* values : {&forward, &input_grad, &weight_grad, &activation_transfer, &gradient_transfer,
                             &activation_bytes, &weight_grad_bytes}) {
    require(values->size() == stages, "one value a stage");
    for (const int64_t value : *values)
      require(value >= 0 && value < (int64_t(1) << 40), "a value out of range");
  }
  problem.rank_of_stage = std::move(rank_of_stage);
  problem.duration[kForward] = std::move(forward);
  problem.duration[kInputGrad] = std::move(input_grad);
  problem.duration[kWeightGrad] = std::move(weight_grad);
  problem.activation_transfer = std::move(activation_transfer);
  problem.gradient_transfer = std::move(gradient_transfer);
  problem.activation_bytes = std::move(activation_bytes);
  problem.weight_grad_bytes = std::move(weight_grad_bytes);
  problem.memory_limit = std::move(memory_limit);
  number_links(problem);
  return problem;
}

void check_order(const Problem& problem, const Order& order) {
  require(int32_t(order.size()) == problem.num_ranks, "one list a rank");
  std::vector<bool> seen(problem.num_tasks());
  for (int32_t rank = 0; rank < problem.num_ranks; ++rank) {
    for (const int32_t task : order[rank]) {
      require(task >= 0 && task < problem.num_tasks(), "no such task");
      require(problem.rank(task) == rank && !seen[task], "a task on another rank, or twice");
      // Kinds come in order for a micro-batch, and so do the micro-batches of a kind.
      const Kind kind = problem.kind(task);
      const int32_t m = problem.microbatch(task);
      require(m == 0 || seen[task - 1], "micro-batches out of order");
      require(kind == kForward || seen[problem.task(Kind(kind - 1), problem.stage(task), m)],
              "kinds out of order");
      seen[task] = true;
    }
  }
  for (const bool one : seen) require(one, "a task is missing");
}

py::object evaluate_order(const Problem& problem, const Order& order) {
  check_order(problem, order);
  Times times;
  Evaluator evaluator(problem);
  if (!evaluator.evaluate(order, times)) return py::none();
  return py::int_(times.makespan);
}

// Whether Ctrl-C was pressed: the search then returns what it has. What another handler raises goes on up.
bool interrupted() {
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() == 0) return false;
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw py::error_already_set();
  PyErr_Clear();
  return true;
}

py::tuple search_order(const Problem& problem, const std::vector<Order>& starts, int64_t lower_bound,
                       int64_t max_evaluations, uint64_t seed) {
  for (const Order& order : starts) {
    check_order(problem, order);
    for (int32_t rank = 0; rank < problem.num_ranks; ++rank) {
      require(fits_memory(problem, rank, order[rank]), "an order to start from exceeds the memory");
    }
  }
  SearchResult result;
  {
    py::gil_scoped_release release;
    result = search(problem, starts, {lower_bound, max_evaluations, seed}, interrupted);
  }
  return py::make_tuple(result.order, result.makespan, result.evaluations, result.stopped);
}

Order greedy(const Problem& problem, int32_t forward_first, bool deepest_forward, int32_t weight_grad_overrun,
             int32_t memory_share) {
  const Policy policy{forward_first, deepest_forward, weight_grad_overrun, memory_share, 0};
  Random random(0);
  Order order;
  {
    py::gil_scoped_release release;
    order = greedy_order(problem, policy, random);
  }
  size_t tasks = 0;
  for (const auto& list : order) tasks += list.size();
  if (tasks != size_t(problem.num_tasks())) throw std::runtime_error("the memory limit let no task begin");
  return order;
}

}  // namespace

void bind_scheduling(py::module_& module) {
  py::class_<Problem>(module, "SchedulingProblem", py::module_local())
      .def(py::init(&make_problem), py::kw_only(), py::arg("rank_of_stage"), py::arg("num_microbatches"),
           py::arg("forward"), py::arg("input_grad"), py::arg("weight_grad"), py::arg("activation_transfer"),
           py::arg("gradient_transfer"), py::arg("activation_bytes"), py::arg("weight_grad_bytes"),
           py::arg("memory_limit"));
  module.def("evaluate_order", &evaluate_order, py::arg("problem"), py::arg("order"));
  module.def("greedy_order", &greedy, py::arg("problem"), py::kw_only(), py::arg("forward_first") = 0,
             py::arg("deepest_forward") = true, py::arg("weight_grad_overrun") = 1000,
             py::arg("memory_share") = 1000);
  module.def("search_order", &search_order, py::arg("problem"), py::arg("starts"), py::kw_only(),
             py::arg("lower_bound"), py::arg("max_evaluations"), py::arg("seed") = 0);
}

}  // namespace dtk::scheduling
