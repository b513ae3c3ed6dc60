#include "bindings.hpp"

#include <optional>

#include <pybind11/stl.h>

#include "attention_split.hpp"
#include "dispatch.hpp"
#include "select_blocks.hpp"

namespace py = pybind11;

namespace dtk {
namespace {

void sparse_decode_attention(const TensorView& query, const TensorView& keys, const TensorView& values,
                             const TensorView& block_table, const TensorView& block_lengths, float scale,
                             const TensorView& output, const TensorView& lse) {
  const AttentionArguments arguments =
      attention_arguments(query, keys, values, block_table, block_lengths, scale, output, lse);
  const py::gil_scoped_release release;
  AttentionSplit split(arguments);
  Scratch scratch;
  for (std::int64_t task = 0; task < split.num_tasks(); ++task) split.run(task, scratch);
}

void quantized_decode_attention(const TensorView& query, const TensorView& keys, const TensorView& values,
                                const TensorView& key_scales, const TensorView& value_scales,
                                const TensorView& block_table, const TensorView& block_lengths,
                                std::int32_t format, float scale, const TensorView& output,
                                const TensorView& lse) {
  const AttentionArguments arguments = quantized_arguments(
      query, keys, values, key_scales, value_scales, block_table, block_lengths, format, scale, output, lse);
  const py::gil_scoped_release release;
  AttentionSplit split(arguments);
  Scratch scratch;
  for (std::int64_t task = 0; task < split.num_tasks(); ++task) split.run(task, scratch);
}

void block_score(const TensorView& query, const TensorView& key_min, const TensorView& key_max,
                 const TensorView& block_table, std::int32_t head_reduction, const TensorView& scores) {
  const ScoreArguments a = score_arguments(query, key_min, key_max, block_table, head_reduction, scores);
  const py::gil_scoped_release release;
  Scratch scratch;
  float* memory = scratch.floats(kernels().score_scratch(a));
  throw_if(kernels().block_score(a, {0, a.batch * a.num_blocks}, memory), "block_table", a.num_pool_blocks,
           0);
}

void block_digest(const TensorView& keys, const TensorView& block_lengths, const TensorView& key_min,
                  const TensorView& key_max) {
  const DigestArguments a = digest_arguments(keys, block_lengths, key_min, key_max);
  const py::gil_scoped_release release;
  throw_if(kernels().block_digest(a, {0, a.num_blocks}), "block_lengths", a.num_blocks, a.block_size);
}

void select(const TensorView& scores, const std::optional<TensorView>& forced, const TensorView& selected) {
  const SelectArguments a = select_arguments(scores, forced, selected);
  const py::gil_scoped_release release;
  Scratch scratch;
  select_blocks(a, {0, a.batch * a.num_groups}, scratch.floats(kernels().select_scratch(a)));
}

void merge(const TensorView& outputs, const TensorView& lses, const TensorView& output,
           const TensorView& lse) {
  MergeArguments a{};
  a.outputs = outputs.as<const float>();
  a.lses = lses.as<const float>();
  a.output = output.as<float>();
  a.lse = lse.as<float>();
  a.num_partials = lses.shape[0];
  a.num_rows = lses.shape[1];
  a.head_dim = outputs.shape[2];
  const py::gil_scoped_release release;
  kernels().merge_partials(a, {0, a.num_rows});
}

}  // namespace

AttentionArguments attention_arguments(const TensorView& query, const TensorView& keys,
                                       const TensorView& values, const TensorView& block_table,
                                       const TensorView& block_lengths, float scale, const TensorView& output,
                                       const TensorView& lse) {
  AttentionArguments a{};
  a.query = query.data;
  a.query_type = query.dtype;
  a.query_batch_stride = query.strides[0];
  a.query_head_stride = query.strides[1];
  a.keys = keys.data;
  a.values = values.data;
  a.pool_type = keys.dtype;
  a.key_block_stride = keys.strides[0];
  a.key_head_stride = keys.strides[1];
  a.key_token_stride = keys.strides[2];
  a.value_block_stride = values.strides[0];
  a.value_head_stride = values.strides[1];
  a.value_token_stride = values.strides[2];
  a.block_table = block_table.as<const std::int32_t>();
  a.block_lengths = block_lengths.as<const std::int32_t>();
  a.output = output.as<float>();
  a.lse = lse.as<float>();
  a.batch = query.shape[0];
  a.num_kv_heads = keys.shape[1];
  a.group_size = query.shape[1] / a.num_kv_heads;
  a.head_dim = query.shape[2];
  a.num_pool_blocks = keys.shape[0];
  a.block_size = keys.shape[2];
  a.num_groups = block_table.shape[1];
  a.num_blocks = block_table.shape[2];
  a.scale = scale;
  return a;
}

AttentionArguments quantized_arguments(const TensorView& query, const TensorView& keys,
                                       const TensorView& values, const TensorView& key_scales,
                                       const TensorView& value_scales, const TensorView& block_table,
                                       const TensorView& block_lengths, std::int32_t format, float scale,
                                       const TensorView& output, const TensorView& lse) {
  AttentionArguments a =
      attention_arguments(query, keys, values, block_table, block_lengths, scale, output, lse);
  a.format = static_cast<KVFormat>(format);
  a.key_scales = key_scales.data;
  a.value_scales = value_scales.data;
  a.scale_type = key_scales.dtype;
  a.num_scales = key_scales.shape[3];
  a.key_scale_block_stride = key_scales.strides[0];
  a.key_scale_head_stride = key_scales.strides[1];
  a.key_scale_token_stride = key_scales.strides[2];
  a.value_scale_block_stride = value_scales.strides[0];
  a.value_scale_head_stride = value_scales.strides[1];
  a.value_scale_token_stride = value_scales.strides[2];
  return a;
}

ScoreArguments score_arguments(const TensorView& query, const TensorView& key_min, const TensorView& key_max,
                               const TensorView& block_table, std::int32_t head_reduction,
                               const TensorView& scores) {
  ScoreArguments a{};
  a.query = query.data;
  a.query_type = query.dtype;
  a.query_batch_stride = query.strides[0];
  a.query_head_stride = query.strides[1];
  a.key_min = key_min.data;
  a.key_max = key_max.data;
  a.digest_type = key_min.dtype;
  a.min_block_stride = key_min.strides[0];
  a.min_head_stride = key_min.strides[1];
  a.max_block_stride = key_max.strides[0];
  a.max_head_stride = key_max.strides[1];
  a.block_table = block_table.as<const std::int32_t>();
  a.scores = scores.as<float>();
  a.batch = query.shape[0];
  a.num_kv_heads = key_min.shape[1];
  a.group_size = query.shape[1] / a.num_kv_heads;
  a.head_dim = query.shape[2];
  a.num_pool_blocks = key_min.shape[0];
  a.num_blocks = block_table.shape[1];
  a.head_reduction = head_reduction;
  return a;
}

DigestArguments digest_arguments(const TensorView& keys, const TensorView& block_lengths,
                                 const TensorView& key_min, const TensorView& key_max) {
  DigestArguments a{};
  a.keys = keys.data;
  a.type = keys.dtype;
  a.block_stride = keys.strides[0];
  a.head_stride = keys.strides[1];
  a.token_stride = keys.strides[2];
  a.block_lengths = block_lengths.as<const std::int32_t>();
  a.key_min = key_min.data;
  a.key_max = key_max.data;
  a.num_blocks = keys.shape[0];
  a.num_kv_heads = keys.shape[1];
  a.block_size = keys.shape[2];
  a.head_dim = keys.shape[3];
  return a;
}

SelectArguments select_arguments(const TensorView& scores, const std::optional<TensorView>& forced,
                                 const TensorView& selected) {
  SelectArguments a{};
  a.scores = scores.as<const float>();
  a.forced = forced ? forced->as<const std::uint8_t>() : nullptr;
  a.selected = selected.as<std::int32_t>();
  a.batch = scores.shape[0];
  a.num_groups = scores.shape[1];
  a.num_blocks = scores.shape[2];
  a.num_selected = selected.shape[2];
  return a;
}

void bind_attention(py::module_& module) {
  module.def("sparse_decode_attention", &sparse_decode_attention);
  module.def("quantized_decode_attention", &quantized_decode_attention);
  module.def("block_score", &block_score);
  module.def("block_digest", &block_digest);
  module.def("select_blocks", &select);
  module.def("merge_partials", &merge);
}

}  // namespace dtk
