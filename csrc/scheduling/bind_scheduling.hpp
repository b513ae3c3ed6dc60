#pragma once

#include <pybind11/pybind11.h>

namespace dtk::scheduling {

void bind_scheduling(pybind11::module_& module);

}  // namespace dtk::scheduling
