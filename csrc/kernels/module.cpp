// dtk_kernels._native: compiled kernels. Python checks shapes, dtypes and strides; pointers cross.
#include "bindings.hpp"
#include "dispatch.hpp"

#include <pybind11/stl.h>

PYBIND11_MODULE(_native, module) {
  module.doc() = "Compiled kernels of dtk_kernels; call them through the public functions, which check.";
  dtk::kernels();  // a wrong DTK_CPU_ISA shows when the module loads
  module.def("instruction_set", [] { return dtk::kernels().instruction_set; });
  module.def("instruction_sets", &dtk::instruction_sets);
  module.def("optional_instruction_sets", &dtk::optional_instruction_sets);
  dtk::bind_attention(module);
  dtk::bind_gemm(module);
  dtk::bind_kv(module);
  dtk::bind_workers(module);
  dtk::bind_limits(module);
  dtk::bind_quant(module);
}
