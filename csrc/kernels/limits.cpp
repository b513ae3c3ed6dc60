#include "limits.hpp"

namespace dtk {

const LimitTable& limits() {
#if defined(DTK_HAVE_AVX2)
  if (__builtin_cpu_supports("avx512f")) return kAvx512Limits;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kAvx2Limits;
#endif
  return kGenericLimits;
}

std::shared_ptr<Job> read_job(const float* from, std::int64_t count, double* sums, std::int64_t num_tasks) {
  const std::int64_t num_steps = count / kReadStep;
  return std::make_shared<Job>(TaskCounts{num_tasks, 1}, [=](std::int64_t task, Scratch&) {
    const std::int64_t begin = num_steps * task / num_tasks, end = num_steps * (task + 1) / num_tasks;
    sums[task] = limits().read(from + begin * kReadStep, (end - begin) * kReadStep);
  });
}

std::shared_ptr<Job> multiply_add_job(std::int64_t steps, double* sums, std::int64_t num_tasks) {
  return std::make_shared<Job>(TaskCounts{num_tasks, 1}, [=](std::int64_t task, Scratch&) {
    sums[task] = limits().multiply_add(steps);
  });
}

}  // namespace dtk
