#include "bindings.hpp"

#include <optional>

#include <pybind11/stl.h>

#include "dispatch.hpp"
#include "scratch.hpp"

namespace py = pybind11;

namespace dtk {
namespace {

void packed_linear(const TensorView& x, const TensorView& weight, const TensorView& scales,
                   std::int32_t format, std::int64_t block_size, const std::optional<TensorView>& bias,
                   const TensorView& output) {
  const ProductArguments a = product_arguments(x, weight, scales, format, block_size, bias, output);
  const py::gil_scoped_release release;
  Scratch scratch;
  float* const activations = scratch.floats(kernels().activation_floats(a));
  kernels().quantize_activations(a, activations);
  kernels().packed_linear(a, activations, {0, a.num_outputs});
}

QuantizedMatrix quantized_matrix(const TensorView& codes, const TensorView& scales, const TensorView& values,
                                 std::int64_t block_size) {
  QuantizedMatrix m{};
  m.codes = codes.as<const std::uint8_t>();
  m.row_stride = codes.strides[0];
  m.scales = scales.as<const float>();
  m.scale_row_stride = scales.strides[0];
  m.values = values.as<const float>();
  m.packed = values.shape[0] == 16;
  m.num_rows = codes.shape[0];
  m.block_size = block_size;
  return m;
}

void scaled_matmul(const TensorView& a_codes, const TensorView& a_scales, const TensorView& a_values,
                   const TensorView& b_codes, const TensorView& b_scales, const TensorView& b_values,
                   std::int64_t block_size, const TensorView& output) {
  MatmulArguments m{};
  m.a = quantized_matrix(a_codes, a_scales, a_values, block_size);
  m.b = quantized_matrix(b_codes, b_scales, b_values, block_size);
  m.output = output.as<float>();
  m.depth = a_scales.shape[1] * block_size;
  const py::gil_scoped_release release;
  Scratch scratch;
  kernels().scaled_matmul(m, {0, m.b.num_rows}, scratch.floats(kernels().scaled_matmul_scratch(m)));
}

}  // namespace

ProductArguments product_arguments(const TensorView& x, const TensorView& weight, const TensorView& scales,
                                   std::int32_t format, std::int64_t block_size,
                                   const std::optional<TensorView>& bias, const TensorView& output) {
  ProductArguments a{};
  a.x = x.as<const float>();
  a.x_row_stride = x.strides[0];
  a.format = static_cast<WeightFormat>(format);
  a.weight = weight.as<const std::uint8_t>();
  a.weight_row_stride = weight.strides[0];
  a.scales = scales.data;
  a.scales_are_e8m0 = scales.element_size == 1;
  a.scale_row_stride = scales.strides[0];
  a.scales_per_row = scales.shape[1];
  a.block_size = block_size;
  a.bias = bias ? bias->as<const float>() : nullptr;
  a.output = output.as<float>();
  a.num_rows = x.shape[0];
  a.num_outputs = weight.shape[0];
  a.depth = x.shape[1];
  return a;
}

void bind_gemm(py::module_& module) {
  module.def("packed_linear", &packed_linear);
  module.def("scaled_matmul", &scaled_matmul);
}

}  // namespace dtk
