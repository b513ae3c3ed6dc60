#include "bindings.hpp"
#include "limits.hpp"

namespace py = pybind11;

namespace dtk {
namespace {

std::shared_ptr<Job> submit_read(WorkerPool& pool, const TensorView& buffer, const TensorView& sums) {
  const py::gil_scoped_release release;
  auto job = read_job(buffer.as<const float>(), buffer.shape[0], sums.as<double>(), sums.shape[0]);
  pool.submit(job);
  return job;
}

std::shared_ptr<Job> submit_multiply_adds(WorkerPool& pool, std::int64_t steps, const TensorView& sums) {
  const py::gil_scoped_release release;
  auto job = multiply_add_job(steps, sums.as<double>(), sums.shape[0]);
  pool.submit(job);
  return job;
}

}  // namespace

void bind_limits(py::module_& module) {
  module.def("limits_instruction_set", [] { return limits().instruction_set; });
  module.def("multiply_adds_per_step", [] { return limits().multiply_adds_per_step; });
  module.def("submit_read", &submit_read);
  module.def("submit_multiply_adds", &submit_multiply_adds);
}

}  // namespace dtk
