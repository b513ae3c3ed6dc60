// What Python holds of a job.
#pragma once

#include <memory>
#include <utility>

#include "worker_pool.hpp"

namespace dtk {

using Pool = std::shared_ptr<WorkerPool>;

// It keeps the pool, too, so that whoever waits can take part.
struct Submitted {
  Pool pool;
  std::shared_ptr<Job> job;
};

inline Submitted submit(const Pool& pool, std::shared_ptr<Job> job) {
  pool->submit(job);
  return {pool, std::move(job)};
}

}  // namespace dtk
