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

void bind_gemm(py::module_& module) { module.def("packed_linear", &packed_linear); }

}  // namespace dtk
