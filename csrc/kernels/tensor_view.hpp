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

  std::int64_t num_bytes() const {  // of a dense tensor
    std::int64_t bytes = element_size;
    for (const std::int64_t size : shape) bytes *= size;
    return bytes;
  }
};

}  // namespace dtk

namespace pybind11::detail {

template <>
struct type_caster<dtk::TensorView> {
  PYBIND11_TYPE_CASTER(dtk::TensorView, const_name("tuple[int, int, int, tuple[int, ...], tuple[int, ...]]"));

  // By Python's own interface: eight of these are read on every call, and `cast` would double their time.
  bool load(handle source, bool) {
    PyObject* const parts = source.ptr();
    if (!PyTuple_Check(parts) || PyTuple_GET_SIZE(parts) != 5) return false;
    value.data = static_cast<std::byte*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(parts, 0)));
    value.dtype = static_cast<dtk::DType>(PyLong_AsLong(PyTuple_GET_ITEM(parts, 1)));
    value.element_size = PyLong_AsLongLong(PyTuple_GET_ITEM(parts, 2));
    if (!read(PyTuple_GET_ITEM(parts, 3), value.shape) || !read(PyTuple_GET_ITEM(parts, 4), value.strides)) {
      return false;
    }
    if (PyErr_Occurred() != nullptr) throw error_already_set();
    return value.shape.size() == value.strides.size();
  }

 private:
  static bool read(PyObject* numbers, std::vector<std::int64_t>& to) {
    if (!PyTuple_Check(numbers)) return false;
    to.resize(static_cast<std::size_t>(PyTuple_GET_SIZE(numbers)));
    for (std::size_t index = 0; index < to.size(); ++index) {
      to[index] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, static_cast<Py_ssize_t>(index)));
    }
    return true;
  }
};

}  // namespace pybind11::detail
