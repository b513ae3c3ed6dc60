// The kinds of work that workers do. Each keeps its own copy of tables and ids, so the caller may change
// those at once; all other memory must stay. What a task finds wrong in a table becomes the job's error.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "block_copy.hpp"
#include "job.hpp"
#include "kernels.hpp"
#include "select_blocks.hpp"

namespace dtk {

std::shared_ptr<Job> attention_job(AttentionArguments arguments);
std::shared_ptr<Job> digest_job(DigestArguments arguments);
std::shared_ptr<Job> score_job(ScoreArguments arguments);
std::shared_ptr<Job> select_job(const SelectArguments& arguments);

// Quantises the activations at once and keeps only those: x may change.
std::shared_ptr<Job> packed_linear_job(const ProductArguments& arguments);

// The copies run in no given order: none may read or write what another writes.
std::shared_ptr<Job> copy_job(std::vector<BlockCopy> copies);

// Copies blocks and fills the `absent` ones, dense blocks of the same size, with zeros.
std::shared_ptr<Job> gather_job(BlockCopy copy, std::vector<std::byte*> absent);

}  // namespace dtk
