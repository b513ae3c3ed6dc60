// A tensor as Python describes it: (data pointer, dtype code, element size, shape, strides in elements).
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace dtk {

struct TensorView {
  std::byte* data = nullptr;
  DType dtype = kOther;
  std::int64_t element_size = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace dtk

namespace pybind11::detail {

template <>
struct type_caster<dtk::TensorView> {
  PYBIND11_TYPE_CASTER(dtk::TensorView, const_name("tuple[int, int, int, tuple[int, ...], tuple[int, ...]]"));

  bool load(handle source, bool) {
    if (!isinstance<tuple>(source)) return false;
    const auto parts = reinterpret_borrow<tuple>(source);
    if (parts.size() != 5) return false;
    value.data = reinterpret_cast<std::byte*>(parts[0].cast<std::uintptr_t>());
    value.dtype = static_cast<dtk::DType>(parts[1].cast<std::int32_t>());
    value.element_size = parts[2].cast<std::int64_t>();
    for (const handle size : parts[3]) value.shape.push_back(size.cast<std::int64_t>());
    for (const handle stride : parts[4]) value.strides.push_back(stride.cast<std::int64_t>());
    return value.shape.size() == value.strides.size();
  }
};

}  // namespace pybind11::detail
