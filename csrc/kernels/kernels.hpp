// What crosses the border between ordinary code and the units built for one instruction set: plain structs
// and function pointers. Nothing here may emit code (no inline functions, no std types), or the linker could
// keep the copy that was compiled for a newer CPU and use it everywhere.
#pragma once

#include <cstdint>

namespace dtk {

enum DType : std::int32_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2, kNumFloatTypes = 3, kOther = 3 };

// How a pool stores K/V: plain floats, or codes with scales.
enum KVFormat : std::int32_t { kPlainKV = 0, kInt8KV = 1, kE4M3KV = 2, kE2M1KV = 3 };

// Which part of an operation a call does, so that several threads can share the work: items
// first..first+count-1.
struct Range {
  std::int64_t first, count;
};

// All strides count elements. A last dim of channels is contiguous, so its stride is left out.
struct AttentionArguments {
  const void* query;  // [batch, num_kv_heads * group_size, head_dim]
  DType query_type;
  std::int64_t query_batch_stride, query_head_stride;
  const void* keys;  // [num_pool_blocks, num_kv_heads, block_size, head_dim]
  const void* values;
  DType pool_type;
  std::int64_t key_block_stride, key_head_stride, key_token_stride;
  std::int64_t value_block_stride, value_head_stride, value_token_stride;
  // Of quantised K/V only: strides count bytes then, and a scale serves head_dim / num_scales channels.
  KVFormat format;
  const void*
      key_scales;  // [num_pool_blocks, num_kv_heads, block_size, num_scales], float32, bfloat16 or E8M0
  const void* value_scales;
  DType scale_type;  // kOther for E8M0
  std::int64_t num_scales;
  std::int64_t key_scale_block_stride, key_scale_head_stride, key_scale_token_stride;
  std::int64_t value_scale_block_stride, value_scale_head_stride, value_scale_token_stride;
  const std::int32_t* block_table;    // dense [batch, num_groups, num_blocks]
  const std::int32_t* block_lengths;  // dense, same shape
  float* output;                      // dense [batch, num_query_heads, head_dim]
  float* lse;                         // dense [batch, num_query_heads]
  std::int64_t batch, num_kv_heads, group_size, head_dim;
  std::int64_t num_pool_blocks, block_size, num_groups, num_blocks;
  float scale;
};

// A run of the block table's columns, for the query heads that share one KV head of one sequence.
struct AttentionTask {
  std::int64_t sequence, kv_head, first_column, num_columns;
  float* output;  // dense [group_size, head_dim]: the result over these columns alone
  float* lse;     // dense [group_size]
};

struct ScoreArguments {
  const void* query;
  DType query_type;
  std::int64_t query_batch_stride, query_head_stride;
  const void* key_min;  // [num_pool_blocks, num_kv_heads, head_dim]
  const void* key_max;
  DType digest_type;
  std::int64_t min_block_stride, min_head_stride, max_block_stride, max_head_stride;
  const std::int32_t* block_table;  // dense [batch, num_blocks]
  float* scores;                    // dense [batch, num_groups, num_blocks]
  std::int64_t batch, num_kv_heads, group_size, head_dim, num_pool_blocks, num_blocks;
  std::int32_t head_reduction;  // 0 layer, 1 group_sum, 2 group_max
};

struct DigestArguments {
  const void* keys;  // [num_blocks, num_kv_heads, block_size, head_dim]
  DType type;
  std::int64_t block_stride, head_stride, token_stride;
  const std::int32_t* block_lengths;  // dense [num_blocks]
  void* key_min;                      // dense [num_blocks, num_kv_heads, head_dim]
  void* key_max;
  std::int64_t num_blocks, num_kv_heads, block_size, head_dim;
};

struct SelectArguments {
  const float* scores;         // dense [batch, num_groups, num_blocks]
  const std::uint8_t* forced;  // dense [batch, num_blocks] of 0 or 1, or null
  std::int32_t* selected;      // dense [batch, num_groups, num_selected]
  std::int64_t batch, num_groups, num_blocks, num_selected;
};

struct MergeArguments {
  const float* outputs;  // dense [num_partials, num_rows, head_dim]
  const float* lses;     // dense [num_partials, num_rows]
  float* output;         // dense [num_rows, head_dim]
  float* lse;            // dense [num_rows]
  std::int64_t num_partials, num_rows, head_dim;
};

// x W^T + bias of weights in a packed format and activations in INT8 (units/activations.inc).
enum WeightFormat : std::int32_t { kE2M1 = 0, kInt8 = 1 };  // two codes a byte, the even one low; one a byte

struct ProductArguments {
  const float* x;  // [num_rows, depth]
  std::int64_t x_row_stride;
  WeightFormat format;
  const std::uint8_t* weight;  // [num_outputs, bytes of depth codes]
  std::int64_t weight_row_stride;
  const void* scales;  // [num_outputs, scales_per_row], float or bytes of E8M0
  bool scales_are_e8m0;
  std::int64_t scale_row_stride, scales_per_row;
  std::int64_t block_size;  // weights that share a scale, a multiple of 16 if a row has several
  const float* bias;        // dense [num_outputs], or null
  float* output;            // dense [num_rows, num_outputs]
  std::int64_t num_rows, num_outputs, depth;
};

// Rows of codes with a scale for each block of them.
struct QuantizedMatrix {
  const std::uint8_t* codes;  // [num_rows, bytes]
  std::int64_t row_stride;
  const float* scales;  // [num_rows, depth / block_size]
  std::int64_t scale_row_stride;
  const float* values;  // of each code: 16 if two codes share a byte, else 256
  bool packed;
  std::int64_t num_rows, block_size;
};

// The values of A times those of B transposed.
struct MatmulArguments {
  QuantizedMatrix a, b;
  float* output;  // dense [a.num_rows, b.num_rows]
  std::int64_t depth;
};

// The first wrong table entry that a kernel met, if any. What it computed is then void.
struct TableError {
  enum Kind : std::int32_t { kNone = 0, kBlockId = 1, kBlockLength = 2 } kind;
  std::int64_t value;
};

struct KernelTable {
  const char* instruction_set;
  // Floats of scratch memory that one task needs.
  std::int64_t (*attention_scratch)(const AttentionArguments&);
  TableError (*attention_task)(const AttentionArguments&, const AttentionTask&, float* scratch);
  std::int64_t (*score_scratch)(const ScoreArguments&);
  // Entries of the block table, counted through all its rows: sequence = entry / num_blocks.
  TableError (*block_score)(const ScoreArguments&, Range entries, float* scratch);
  TableError (*block_digest)(const DigestArguments&, Range blocks);
  std::int64_t (*select_scratch)(const SelectArguments&);
  // Rows are (sequence, group) pairs; none forces more than num_selected columns.
  void (*select_blocks)(const SelectArguments&, Range rows, float* scratch);
  void (*merge_partials)(const MergeArguments&, Range rows);
  // Floats of memory, aligned to cache lines, that the quantised activations of all rows need.
  std::int64_t (*activation_floats)(const ProductArguments&);
  void (*quantize_activations)(const ProductArguments&, float* to);
  void (*packed_linear)(const ProductArguments&, const float* activations, Range outputs);
  std::int64_t (*scaled_matmul_scratch)(const MatmulArguments&);
  void (*scaled_matmul)(const MatmulArguments&, Range columns, float* scratch);
};

extern const KernelTable kGenericKernels;
#if defined(DTK_HAVE_AVX2)
extern const KernelTable kAvx2Kernels;
#endif
#if defined(DTK_HAVE_AVX512)
extern const KernelTable kAvx512Kernels;
#endif

}  // namespace dtk
