#include "bindings.hpp"

#include <cstdint>
#include <optional>
#include <utility>

#include <pybind11/stl.h>

#include "huge_pages.hpp"
#include "jobs.hpp"
#include "quantize.hpp"
#include "submitted.hpp"

namespace py = pybind11;

namespace dtk {
namespace {

using Block = std::optional<std::pair<std::int64_t, std::int64_t>>;

std::optional<BlockShape> block_shape(const Block& block) {
  if (!block) return std::nullopt;
  return BlockShape{block->first, block->second};
}

// x is [num_matrices, rows, columns], its last dim contiguous; all else is dense and in its shape.
Quantization quantization(const TensorView& x, const std::optional<TensorView>& random_bits,
                          const NumberFormat& format, const Block& block, const ScaleRule& scale_rule) {
  QuantArguments a{};
  a.x = x.data;
  a.type = x.dtype;
  a.matrix_stride = x.strides[0];
  a.row_stride = x.strides[1];
  a.random_bits = random_bits ? random_bits->as<const std::uint32_t>() : nullptr;
  a.num_matrices = x.shape[0];
  a.rows = x.shape[1];
  a.columns = x.shape[2];
  a.format = format;
  a.scale_rule = scale_rule;
  return {a, block_shape(block), nullptr};
}

Quantization to_codes(const TensorView& x, const std::optional<TensorView>& random_bits,
                      const NumberFormat& format, const Block& block, const ScaleRule& scale_rule,
                      const TensorView& codes, const TensorView& scales, const TensorView& tensor_scale) {
  Quantization work = quantization(x, random_bits, format, block, scale_rule);
  work.arguments.codes = codes.as<std::uint8_t>();
  prefer_huge_pages(codes.data, codes.num_bytes());
  work.arguments.scales = scales.data;
  work.tensor_scale = tensor_scale.as<float>();
  return work;
}

Quantization to_values(const TensorView& x, const std::optional<TensorView>& random_bits,
                       const NumberFormat& format, const Block& block, const ScaleRule& scale_rule,
                       const TensorView& values) {
  Quantization work = quantization(x, random_bits, format, block, scale_rule);
  work.arguments.values = values.data;
  prefer_huge_pages(values.data, values.num_bytes());
  return work;
}

// The same function as a direct call and as a job.
template <auto kMake, typename... Arguments>
void run(const Arguments&... arguments) {
  const py::gil_scoped_release release;
  quantize(kMake(arguments...));
}

template <auto kMake, typename... Arguments>
Submitted start(const Pool& pool, const Arguments&... arguments) {
  const py::gil_scoped_release release;
  return submit(pool, quantize_job(kMake(arguments...)));
}

template <auto kMake, typename... Arguments>
void bind(py::module_& module, py::class_<WorkerPool, Pool>& pool, const char* name, const char* submit_name,
          Quantization (*)(Arguments...)) {
  module.def(name, [](Arguments... arguments) { run<kMake>(arguments...); });
  pool.def(submit_name,
           [](const Pool& threads, Arguments... arguments) { return start<kMake>(threads, arguments...); });
}

void dequantize_codes(const TensorView& codes, const TensorView& scales, ScaleFormat scale_format,
                      float tensor_scale, const NumberFormat& format, const Block& block,
                      const TensorView& values) {
  DequantArguments a{};
  a.codes = codes.as<const std::uint8_t>();
  a.scales = scales.data;
  a.scale_format = scale_format;
  a.tensor_scale = tensor_scale;
  a.format = format;
  a.num_matrices = codes.shape[0];
  a.rows = codes.shape[1];
  a.columns = codes.shape[2];
  a.values = values.as<float>();
  prefer_huge_pages(values.data, values.num_bytes());
  const py::gil_scoped_release release;
  dequantize(a, block_shape(block));
}

void transform(const TensorView& x, const TensorView& signs, bool inverse, const TensorView& values) {
  HadamardArguments a{};
  a.x = x.data;
  a.type = x.dtype;
  a.row_stride = x.strides[0];
  a.num_rows = x.shape[0];
  a.columns = x.shape[1];
  a.size = signs.shape[0];
  a.signs = signs.as<const float>();
  a.inverse = inverse;
  a.values = values.data;
  const py::gil_scoped_release release;
  hadamard(a);
}

NibbleArguments nibbles(const TensorView& codes, const TensorView& packed) {
  return {codes.as<std::uint8_t>(), packed.as<std::uint8_t>(), codes.shape[0], codes.shape[1]};
}

void pack(const TensorView& codes, const TensorView& packed) {
  const py::gil_scoped_release release;
  quant_kernels().pack(nibbles(codes, packed));
}

void unpack(const TensorView& packed, const TensorView& codes, bool with_sign) {
  const py::gil_scoped_release release;
  quant_kernels().unpack(nibbles(codes, packed), with_sign);
}

NumberFormat number_format(std::int32_t bits, std::int32_t mantissa_bits, std::int32_t min_exponent,
                           std::int32_t max_exponent, std::int32_t max_code,
                           std::optional<std::int32_t> infinity_code,
                           std::optional<std::int32_t> first_nan_code, bool is_integer, float max) {
  return {bits,
          mantissa_bits,
          min_exponent,
          max_exponent,
          max_code,
          infinity_code.value_or(-1),
          first_nan_code.value_or(-1),
          is_integer,
          max};
}

}  // namespace

void bind_quant(py::module_& module) {
  py::class_<NumberFormat>(module, "NumberFormat")
      .def(py::init(&number_format), py::kw_only(), py::arg("bits"), py::arg("mantissa_bits"),
           py::arg("min_exponent"), py::arg("max_exponent"), py::arg("max_code"), py::arg("infinity_code"),
           py::arg("first_nan_code"), py::arg("is_integer"), py::arg("largest"));
  py::enum_<ScaleFormat>(module, "ScaleFormat")
      .value("fp32", ScaleFormat::kFloat32)
      .value("bf16", ScaleFormat::kBFloat16)
      .value("e8m0", ScaleFormat::kE8M0)
      .value("nvfp4", ScaleFormat::kNvfp4);
  py::class_<ScaleRule>(module, "ScaleRule").def(py::init<ScaleFormat, std::int32_t>());
  py::class_<WorkerPool, Pool> pool = module.attr("WorkerPool");
  bind<&to_codes>(module, pool, "quantize", "submit_quantize", &to_codes);
  bind<&to_values>(module, pool, "fake_quantize", "submit_fake_quantize", &to_values);
  module.def("dequantize", &dequantize_codes);
  module.def("hadamard", &transform);
  module.def("pack", &pack);
  module.def("unpack", &unpack);
}

}  // namespace dtk
