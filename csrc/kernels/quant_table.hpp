// What the units of quantisation offer, one table an instruction set; as bare as kernels.hpp. They are units
// of their own because their results must be the same, bit for bit, on every machine: no multiply-add may be
// fused.
#pragma once

#include "kernels.hpp"

namespace dtk {

// An element format, as dtk_kernels.formats describes it. An integer format counts as one whose values are
// all subnormal: `min_exponent` is then that of its largest power of two.
struct NumberFormat {
  std::int32_t bits, mantissa_bits, min_exponent, max_exponent, max_code;
  std::int32_t infinity_code, first_nan_code;  // -1: none
  bool is_integer;
  float max;
};

enum class ScaleFormat : std::int32_t { kFloat32 = 0, kBFloat16 = 1, kE8M0 = 2, kNvfp4 = 3 };

struct ScaleRule {
  ScaleFormat format;
  std::int32_t e8m0_addend;  // dtk_kernels.formats.e8m0_addend
};

// How matrices are cut into the items of work: bands of block_rows rows, and those into tiles of whole
// blocks.
struct Tiling {
  std::int64_t tile_columns, tiles_in_band, bands_in_matrix, num_items;
};

// All strides count elements; the last dim is contiguous. Blocks at the end of a dim may be short.
struct QuantArguments {
  const void* x;  // [num_matrices, rows, columns]
  DType type;
  std::int64_t matrix_stride, row_stride;
  const std::uint32_t* random_bits;  // dense, in the shape of x, or null: round to nearest
  std::int64_t num_matrices, rows, columns, block_rows, block_columns;
  NumberFormat format;
  ScaleRule scale_rule;
  Tiling tiling;
  // One of them; dense, in the shape of x.
  void* values;         // of x's type: quantised and dequantised
  std::uint8_t* codes;  // one a byte
  void* scales;         // dense [num_matrices, bands, blocks across], or null
  bool streams;         // values or codes are written past the cache
};

// Scales that hold for more than one item: NVFP4's tensor scale, or the factor of the only block.
struct SharedScale {
  float tensor_scale;
  bool is_only_block;
  float divisor, factor;  // of the only block
};

struct DequantArguments {
  const std::uint8_t* codes;  // dense [num_matrices, rows, columns]
  const void* scales;         // dense [num_matrices, bands, blocks across]
  ScaleFormat scale_format;
  float tensor_scale;
  NumberFormat format;
  std::int64_t num_matrices, rows, columns, block_rows, block_columns;
  Tiling tiling;
  float* values;  // dense
};

struct HadamardArguments {
  const void* x;  // [num_rows, columns]
  DType type;
  std::int64_t row_stride, num_rows, columns, size;
  const float* signs;  // dense [size]
  bool inverse;
  void* values;  // dense, of x's type
};

struct NibbleArguments {
  std::uint8_t* codes;   // dense [num_rows, count]
  std::uint8_t* packed;  // dense [num_rows, ceil(count / 2)]
  std::int64_t num_rows, count;
};

struct QuantTable {
  const char* instruction_set;
  // Floats of scratch memory that an item needs.
  std::int64_t (*quantize_scratch)(const QuantArguments&);
  std::int64_t (*dequantize_scratch)(const DequantArguments&);
  std::int64_t (*hadamard_scratch)(const HadamardArguments&);
  // The bits of the largest magnitude in some items; non-finite values are left out, or win.
  std::uint32_t (*amax)(const QuantArguments&, Range items, bool only_finite);
  // The scale of the only block, written to `scales` if it is not null.
  SharedScale (*only_block)(const QuantArguments&, std::uint32_t amax_bits, float tensor_scale);
  void (*quantize)(const QuantArguments&, const SharedScale&, Range items, float* scratch);
  void (*dequantize)(const DequantArguments&, Range items, float* scratch);
  void (*hadamard)(const HadamardArguments&, Range rows, float* scratch);
  void (*pack)(const NibbleArguments&);
  void (*unpack)(const NibbleArguments&, bool with_sign);
};

extern const QuantTable kGenericQuant;
#if defined(DTK_HAVE_AVX2)
extern const QuantTable kAvx2Quant;
#endif
#if defined(DTK_HAVE_AVX512)
extern const QuantTable kAvx512Quant;
#endif

}  // namespace dtk
