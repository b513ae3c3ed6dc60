// Jobs that measure the machine's limits.
#pragma once

#include <memory>

#include "limits_table.hpp"
#include "worker_pool.hpp"

namespace dtk {

// The widest that this build has and this CPU runs, whatever DTK_CPU_ISA says: a limit is the machine's.
const LimitTable& limits();

// Reads `count` floats once, in tasks that all threads take from; `sum` gets their sum when the job is done.
std::shared_ptr<Job> read_job(const float* from, std::int64_t count, double* sums, std::int64_t num_tasks);

// Runs `num_tasks` tasks of so many steps of multiply-adds.
std::shared_ptr<Job> multiply_add_job(std::int64_t steps, double* sums, std::int64_t num_tasks);

}  // namespace dtk
