// The parts of the Python module, and how Python's views become kernel arguments.
#pragma once

#include <pybind11/pybind11.h>

#include "block_copy.hpp"
#include "kernels.hpp"
#include "tensor_view.hpp"

namespace dtk {

void bind_attention(pybind11::module_& module);
void bind_kv(pybind11::module_& module);
void bind_limits(pybind11::module_& module);  // after the workers, whose types it uses
void bind_workers(pybind11::module_& module);

// Views as `sparse_decode_attention` in Python checks them; tables and results are dense.
AttentionArguments attention_arguments(const TensorView& query, const TensorView& keys,
                                       const TensorView& values, const TensorView& block_table,
                                       const TensorView& block_lengths, float scale, const TensorView& output,
                                       const TensorView& lse);

// Throws std::invalid_argument if an id is wrong. Ids are dense and copied.
BlockCopy block_copy(const TensorView& source_pool, const TensorView& source_ids,
                     const TensorView& target_pool, const TensorView& target_ids);

}  // namespace dtk
