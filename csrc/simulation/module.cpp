// dtk._native: the compiled event core. Python checks the graph (dtk.simulation.graph); arrays cross
// uncopied.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "bind_scheduling.hpp"
#include "event_core.hpp"

namespace py = pybind11;

namespace {

template <typename Value>
using Array = py::array_t<Value, py::array::c_style>;

template <typename Value>
std::span<const Value> span(const Array<Value>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

// Lets Ctrl-C end a long run.
void poll_signals() {
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

Array<std::int64_t> start_times(const Array<std::int64_t>& durations, const Array<std::int32_t>& resources,
                                const Array<std::int64_t>& positions,
                                const Array<std::int64_t>& predecessor_offsets,
                                const Array<std::int32_t>& predecessors,
                                const Array<std::uint8_t>& first_ready) {
  const dtk::simulation::TaskGraph graph{span(durations),           span(resources),    span(positions),
                                         span(predecessor_offsets), span(predecessors), span(first_ready)};
  Array<std::int64_t> starts(durations.size());
  const std::span<std::int64_t> written{starts.mutable_data(), static_cast<std::size_t>(starts.size())};
  const py::gil_scoped_release release;
  dtk::simulation::simulate(graph, written, poll_signals);
  return starts;
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "The compiled event core of dtk; call it through dtk.simulation, which checks.";
  module.def("start_times", &start_times, py::arg("durations").noconvert(), py::arg("resources").noconvert(),
             py::arg("positions").noconvert(), py::arg("predecessor_offsets").noconvert(),
             py::arg("predecessors").noconvert(), py::arg("first_ready").noconvert(), py::pos_only());
  dtk::scheduling::bind_scheduling(module);
}
