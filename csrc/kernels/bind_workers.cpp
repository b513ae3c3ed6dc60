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
#include "submitted.hpp"

namespace py = pybind11;

namespace dtk {
namespace {

void require_own_process(const Job& job) {
  if (job.process() != getpid()) throw std::runtime_error("this job belongs to the process before the fork");
}

bool done(const Submitted& submitted) {
  require_own_process(*submitted.job);
  return submitted.job->done();
}

constexpr std::chrono::milliseconds kSignalCheck{50};  // now and then, Ctrl-C gets its chance

// This thread without the interpreter's lock. No destructor takes it back: at the interpreter's end Python
// unwinds a thread that asks for the lock, and a destructor that does would end the program.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  void lock() { PyEval_RestoreThread(state_); }
  // Returns whether a signal handler has raised; Python's error is set then.
  bool interrupted() {
    lock();
    const bool raised = PyErr_CheckSignals() != 0;
    state_ = PyEval_SaveThread();
    return raised;
  }

 private:
  PyThreadState* state_;
};

// Takes part in the job, or returns at once if that cannot be. Returns whether a signal handler has raised.
bool help(const Submitted& submitted, Unlocked& unlocked) {
  bool raised = false;
  auto last_check = std::chrono::steady_clock::now();
  submitted.pool->help(submitted.job, [&] {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_check < kSignalCheck) return false;
    last_check = now;
    raised = unlocked.interrupted();
    return raised;
  });
  return raised;
}

bool wait_unlocked(const Submitted& submitted, bool take_part, Unlocked& unlocked) {
  bool raised = take_part && help(submitted, unlocked);
  while (!raised && !submitted.job->wait_for(kSignalCheck)) {
    raised = unlocked.interrupted() || (take_part && help(submitted, unlocked));
  }
  return raised;
}

void wait(const Submitted& submitted, bool take_part) {
  require_own_process(*submitted.job);
  if (submitted.job->done()) return submitted.job->rethrow_error();
  bool raised = false;
  Unlocked unlocked;
  try {
    raised = wait_unlocked(submitted, take_part, unlocked);
  } catch (const std::exception&) {
    unlocked.lock();
    throw;
  }
  unlocked.lock();
  if (raised) throw py::error_already_set();
  submitted.job->rethrow_error();
}

Submitted submit_attention(const Pool& pool, const TensorView& query, const TensorView& keys,
                           const TensorView& values, const TensorView& block_table,
                           const TensorView& block_lengths, float scale, const TensorView& output,
                           const TensorView& lse) {
  const py::gil_scoped_release release;
  return submit(pool, attention_job(attention_arguments(query, keys, values, block_table, block_lengths,
                                                        scale, output, lse)));
}

Submitted submit_quantized_attention(const Pool& pool, const TensorView& query, const TensorView& keys,
                                     const TensorView& values, const TensorView& key_scales,
                                     const TensorView& value_scales, const TensorView& block_table,
                                     const TensorView& block_lengths, std::int32_t format, float scale,
                                     const TensorView& output, const TensorView& lse) {
  const py::gil_scoped_release release;
  return submit(pool,
                attention_job(quantized_arguments(query, keys, values, key_scales, value_scales, block_table,
                                                  block_lengths, format, scale, output, lse)));
}

Submitted submit_digest(const Pool& pool, const TensorView& keys, const TensorView& block_lengths,
                        const TensorView& key_min, const TensorView& key_max) {
  const py::gil_scoped_release release;
  return submit(pool, digest_job(digest_arguments(keys, block_lengths, key_min, key_max)));
}

Submitted submit_score(const Pool& pool, const TensorView& query, const TensorView& key_min,
                       const TensorView& key_max, const TensorView& block_table, std::int32_t head_reduction,
                       const TensorView& scores) {
  const py::gil_scoped_release release;
  return submit(pool,
                score_job(score_arguments(query, key_min, key_max, block_table, head_reduction, scores)));
}

Submitted submit_select(const Pool& pool, const TensorView& scores, const std::optional<TensorView>& forced,
                        const TensorView& selected) {
  const py::gil_scoped_release release;
  return submit(pool, select_job(select_arguments(scores, forced, selected)));
}

Submitted submit_packed_linear(const Pool& pool, const TensorView& x, const TensorView& weight,
                               const TensorView& scales, std::int32_t format, std::int64_t block_size,
                               const std::optional<TensorView>& bias, const TensorView& output) {
  const py::gil_scoped_release release;
  return submit(pool,
                packed_linear_job(product_arguments(x, weight, scales, format, block_size, bias, output)));
}

Submitted submit_gather(const Pool& pool, const TensorView& blocks_pool, const TensorView& block_ids,
                        const TensorView& blocks) {
  const py::gil_scoped_release release;
  BlockCopy copy = gather_copy(blocks_pool, block_ids, blocks);
  auto absent = absent_blocks(block_ids, blocks, copy.block_bytes());
  return submit(pool, gather_job(std::move(copy), std::move(absent)));
}

Submitted submit_scatter(const Pool& pool, const TensorView& blocks_pool, const TensorView& block_ids,
                         const TensorView& blocks) {
  const py::gil_scoped_release release;
  std::vector<BlockCopy> copies;
  copies.push_back(scatter_copy(blocks_pool, block_ids, blocks));
  return submit(pool, copy_job(std::move(copies)));
}

Submitted submit_copies(const Pool& pool, const py::list& copies) {
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
  py::class_<Submitted>(module, "Job").def("done", &done).def("wait", &wait, py::arg("take_part"));
  py::class_<WorkerPool, Pool>(module, "WorkerPool")
      .def(py::init<int, int>(), py::arg("num_threads"), py::arg("threads_per_sequence"))
      .def("submit_sparse_decode_attention", &submit_attention)
      .def("submit_quantized_decode_attention", &submit_quantized_attention)
      .def("submit_block_digest", &submit_digest)
      .def("submit_block_score", &submit_score)
      .def("submit_select_blocks", &submit_select)
      .def("submit_packed_linear", &submit_packed_linear)
      .def("submit_gather_blocks", &submit_gather)
      .def("submit_scatter_blocks", &submit_scatter)
      .def("submit_copy_blocks", &submit_copies)
      .def("close", &WorkerPool::close, py::call_guard<py::gil_scoped_release>());
}

}  // namespace dtk
