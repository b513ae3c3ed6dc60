#include "bindings.hpp"
#include "limits.hpp"
#include "submitted.hpp"

namespace py = pybind11;

namespace dtk {
namespace {

Submitted submit_read(const Pool& pool, const TensorView& buffer, const TensorView& sums) {
  const py::gil_scoped_release release;
  return submit(pool, read_job(buffer.as<const float>(), buffer.shape[0], sums.as<double>(), sums.shape[0]));
}

Submitted submit_multiply_adds(const Pool& pool, std::int64_t steps, const TensorView& sums) {
  const py::gil_scoped_release release;
  return submit(pool, multiply_add_job(steps, sums.as<double>(), sums.shape[0]));
}

}  // namespace

void bind_limits(py::module_& module) {
  module.def("limits_instruction_set", [] { return limits().instruction_set; });
  module.def("multiply_adds_per_step", [] { return limits().multiply_adds_per_step; });
  module.def("submit_read", &submit_read);
  module.def("submit_multiply_adds", &submit_multiply_adds);
}

}  // namespace dtk
