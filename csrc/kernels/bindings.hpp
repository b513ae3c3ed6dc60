// The parts of the Python module, and how Python's views become kernel arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <pybind11/pybind11.h>

#include "block_copy.hpp"
#include "kernels.hpp"
#include "select_blocks.hpp"
#include "tensor_view.hpp"

namespace dtk {

void bind_attention(pybind11::module_& module);
void bind_gemm(pybind11::module_& module);
void bind_kv(pybind11::module_& module);
void bind_limits(pybind11::module_& module);  // after the workers, whose types it uses
void bind_quant(pybind11::module_& module);   // after the workers, too
void bind_workers(pybind11::module_& module);

// Views as `sparse_decode_attention` in Python checks them; tables and results are dense.
AttentionArguments attention_arguments(const TensorView& query, const TensorView& keys,
                                       const TensorView& values, const TensorView& block_table,
                                       const TensorView& block_lengths, float scale, const TensorView& output,
                                       const TensorView& lse);

// The same for K/V as codes of a KVFormat with scales.
AttentionArguments quantized_arguments(const TensorView& query, const TensorView& keys,
                                       const TensorView& values, const TensorView& key_scales,
                                       const TensorView& value_scales, const TensorView& block_table,
                                       const TensorView& block_lengths, std::int32_t format, float scale,
                                       const TensorView& output, const TensorView& lse);

ScoreArguments score_arguments(const TensorView& query, const TensorView& key_min, const TensorView& key_max,
                               const TensorView& block_table, std::int32_t head_reduction,
                               const TensorView& scores);

DigestArguments digest_arguments(const TensorView& keys, const TensorView& block_lengths,
                                 const TensorView& key_min, const TensorView& key_max);

SelectArguments select_arguments(const TensorView& scores, const std::optional<TensorView>& forced,
                                 const TensorView& selected);

ProductArguments product_arguments(const TensorView& x, const TensorView& weight, const TensorView& scales,
                                   std::int32_t format, std::int64_t block_size,
                                   const std::optional<TensorView>& bias, const TensorView& output);

// These throw std::invalid_argument if an id is wrong. Ids are dense and copied.
BlockCopy block_copy(const TensorView& source_pool, const TensorView& source_ids,
                     const TensorView& target_pool, const TensorView& target_ids);

BlockCopy gather_copy(const TensorView& pool, const TensorView& block_ids, const TensorView& blocks);

BlockCopy scatter_copy(const TensorView& pool, const TensorView& block_ids, const TensorView& blocks);

// Where the dense blocks begin whose id is -1: a gather fills them with zeros.
std::vector<std::byte*> absent_blocks(const TensorView& block_ids, const TensorView& blocks,
                                      std::int64_t block_bytes);

}  // namespace dtk
