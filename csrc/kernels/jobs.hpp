// The kinds of work that workers do.
#pragma once

#include <memory>
#include <vector>

#include "block_copy.hpp"
#include "job.hpp"
#include "kernels.hpp"

namespace dtk {

// Keeps its own copy of the tables, so the caller may change them at once; a wrong entry becomes the job's
// error.
std::shared_ptr<Job> attention_job(const AttentionArguments& arguments);

// The copies run in no given order: none may read or write what another writes.
std::shared_ptr<Job> copy_job(std::vector<BlockCopy> copies);

}  // namespace dtk
