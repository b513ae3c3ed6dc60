#include "bindings.hpp"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <vector>

#include <unistd.h>

#include "jobs.hpp"
#include "worker_pool.hpp"

namespace py = pybind11;

namespace dtk {
namespace {

void require_own_process(const Job& job) {
  if (job.process() != getpid()) throw std::runtime_error("this job belongs to the process before the fork");
}

bool done(const Job& job) {
  require_own_process(job);
  return job.done();
}

void wait(const Job& job) {
  require_own_process(job);
  if (job.done()) return job.rethrow_error();
  while (true) {
    bool ended = false;
    {
      const py::gil_scoped_release release;
      ended = job.wait_for(std::chrono::milliseconds(50));  // now and then, Ctrl-C gets its chance
    }
    if (ended) break;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  job.rethrow_error();
}

std::shared_ptr<Job> submit_attention(WorkerPool& pool, const TensorView& query, const TensorView& keys,
                                      const TensorView& values, const TensorView& block_table,
                                      const TensorView& block_lengths, float scale, const TensorView& output,
                                      const TensorView& lse) {
  const py::gil_scoped_release release;
  auto job =
      attention_job(attention_arguments(query, keys, values, block_table, block_lengths, scale, output, lse));
  pool.submit(job);
  return job;
}

std::shared_ptr<Job> submit_copies(WorkerPool& pool, const py::list& copies) {
  std::vector<BlockCopy> planned;
  for (const py::handle item : copies) {
    const auto parts = item.cast<py::tuple>();
    planned.push_back(block_copy(parts[0].cast<TensorView>(), parts[1].cast<TensorView>(),
                                 parts[2].cast<TensorView>(), parts[3].cast<TensorView>()));
  }
  const py::gil_scoped_release release;
  auto job = copy_job(std::move(planned));
  pool.submit(job);
  return job;
}

}  // namespace

void bind_workers(py::module_& module) {
  py::class_<Job, std::shared_ptr<Job>>(module, "Job").def("done", &done).def("wait", &wait);
  py::class_<WorkerPool>(module, "WorkerPool")
      .def(py::init<int, int>(), py::arg("num_threads"), py::arg("threads_per_sequence"))
      .def("submit_sparse_decode_attention", &submit_attention)
      .def("submit_copy_blocks", &submit_copies)
      .def("close", &WorkerPool::close, py::call_guard<py::gil_scoped_release>());
}

}  // namespace dtk
