#include "bindings.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <pybind11/stl.h>
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

std::shared_ptr<Job> submit(WorkerPool& pool, std::shared_ptr<Job> job) {
  pool.submit(job);
  return job;
}

std::shared_ptr<Job> submit_attention(WorkerPool& pool, const TensorView& query, const TensorView& keys,
                                      const TensorView& values, const TensorView& block_table,
                                      const TensorView& block_lengths, float scale, const TensorView& output,
                                      const TensorView& lse) {
  const py::gil_scoped_release release;
  return submit(pool, attention_job(attention_arguments(query, keys, values, block_table, block_lengths,
                                                        scale, output, lse)));
}

std::shared_ptr<Job> submit_digest(WorkerPool& pool, const TensorView& keys, const TensorView& block_lengths,
                                   const TensorView& key_min, const TensorView& key_max) {
  const py::gil_scoped_release release;
  return submit(pool, digest_job(digest_arguments(keys, block_lengths, key_min, key_max)));
}

std::shared_ptr<Job> submit_score(WorkerPool& pool, const TensorView& query, const TensorView& key_min,
                                  const TensorView& key_max, const TensorView& block_table,
                                  std::int32_t head_reduction, const TensorView& scores) {
  const py::gil_scoped_release release;
  return submit(pool,
                score_job(score_arguments(query, key_min, key_max, block_table, head_reduction, scores)));
}

std::shared_ptr<Job> submit_select(WorkerPool& pool, const TensorView& scores,
                                   const std::optional<TensorView>& forced, const TensorView& selected) {
  const py::gil_scoped_release release;
  return submit(pool, select_job(select_arguments(scores, forced, selected)));
}

std::shared_ptr<Job> submit_gather(WorkerPool& pool, const TensorView& blocks_pool,
                                   const TensorView& block_ids, const TensorView& blocks) {
  const py::gil_scoped_release release;
  BlockCopy copy = gather_copy(blocks_pool, block_ids, blocks);
  auto absent = absent_blocks(block_ids, blocks, copy.block_bytes());
  return submit(pool, gather_job(std::move(copy), std::move(absent)));
}

std::shared_ptr<Job> submit_scatter(WorkerPool& pool, const TensorView& blocks_pool,
                                    const TensorView& block_ids, const TensorView& blocks) {
  const py::gil_scoped_release release;
  std::vector<BlockCopy> copies;
  copies.push_back(scatter_copy(blocks_pool, block_ids, blocks));
  return submit(pool, copy_job(std::move(copies)));
}

std::shared_ptr<Job> submit_copies(WorkerPool& pool, const py::list& copies) {
  std::vector<BlockCopy> planned;
  for (const py::handle item : copies) {
    const auto parts = item.cast<py::tuple>();
    planned.push_back(block_copy(parts[0].cast<TensorView>(), parts[1].cast<TensorView>(),
                                 parts[2].cast<TensorView>(), parts[3].cast<TensorView>()));
  }
  const py::gil_scoped_release release;
  return submit(pool, copy_job(std::move(planned)));
}

}  // namespace

void bind_workers(py::module_& module) {
  py::class_<Job, std::shared_ptr<Job>>(module, "Job").def("done", &done).def("wait", &wait);
  py::class_<WorkerPool>(module, "WorkerPool")
      .def(py::init<int, int>(), py::arg("num_threads"), py::arg("threads_per_sequence"))
      .def("submit_sparse_decode_attention", &submit_attention)
      .def("submit_block_digest", &submit_digest)
      .def("submit_block_score", &submit_score)
      .def("submit_select_blocks", &submit_select)
      .def("submit_gather_blocks", &submit_gather)
      .def("submit_scatter_blocks", &submit_scatter)
      .def("submit_copy_blocks", &submit_copies)
      .def("close", &WorkerPool::close, py::call_guard<py::gil_scoped_release>());
}

}  // namespace dtk
