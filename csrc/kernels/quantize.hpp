// Quantisation as direct calls and as jobs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "job.hpp"
#include "quant_table.hpp"

namespace dtk {

// The units in use: of the instruction set that kernels() has.
const QuantTable& quant_kernels();

// Rows and columns of a block, 0 for the whole dim.
struct BlockShape {
  std::int64_t rows, columns;
};

struct Quantization {
  QuantArguments
      arguments;  // with the shape as callers have it; sizes of blocks and tiling are filled in here
  std::optional<BlockShape> block;  // none: one block for everything
  float* tensor_scale;              // where NVFP4's goes, or null
};

void quantize(const Quantization& work);
std::shared_ptr<Job> quantize_job(const Quantization& work);

void dequantize(DequantArguments arguments, const std::optional<BlockShape>& block);
void hadamard(const HadamardArguments& arguments);

}  // namespace dtk
