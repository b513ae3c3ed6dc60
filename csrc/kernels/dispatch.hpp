// The choice of an instruction set, made once when the module loads.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace dtk {

// The kernels in use. Throws std::invalid_argument (first call only) if DTK_CPU_ISA names an instruction set
// that this build or this CPU lacks.
const KernelTable& kernels();

// The instruction sets that this build has and this CPU runs, slowest first: the last one is the default.
std::vector<std::string> instruction_sets();

// Those that only DTK_CPU_ISA can choose.
std::vector<std::string> optional_instruction_sets();

// Throws std::invalid_argument in the words of the Python reference if the error is one.
void throw_if(const TableError& error, const char* table_name, std::int64_t num_pool_blocks,
              std::int64_t block_size);

}  // namespace dtk
