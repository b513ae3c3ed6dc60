#include "dispatch.hpp"

#include <cstdlib>
#include <stdexcept>

#if defined(DTK_HAVE_AVX2)
#include <cpuid.h>
#endif

namespace dtk {
namespace {

#if defined(DTK_HAVE_AVX2)
bool cpu_has_f16c() {  // not a name that every compiler's __builtin_cpu_supports knows
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

// Slowest first; the last is the automatic choice.
std::vector<const KernelTable*> automatic_kernels() {
  std::vector<const KernelTable*> usable = {&kGenericKernels};
#if defined(DTK_HAVE_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c()) {
    usable.push_back(&kAvx2Kernels);
  }
#endif
  return usable;
}

// Only by name: few machines that run our tests execute them, and wide vectors slow some CPUs' clocks.
std::vector<const KernelTable*> optional_kernels() {
  std::vector<const KernelTable*> usable;
#if defined(DTK_HAVE_AVX512)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    usable.push_back(&kAvx512Kernels);
  }
#endif
  return usable;
}

std::vector<std::string> names_of(const std::vector<const KernelTable*>& tables) {
  std::vector<std::string> names;
  for (const KernelTable* table : tables) names.emplace_back(table->instruction_set);
  return names;
}

const KernelTable& choose() {
  auto usable = automatic_kernels();
  const char* wanted = std::getenv("DTK_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return *usable.back();
  for (const KernelTable* table : optional_kernels()) usable.push_back(table);
  std::string names;
  for (const KernelTable* table : usable) {
    if (std::string(wanted) == table->instruction_set) return *table;
    names += (names.empty() ? "" : ", ") + std::string(table->instruction_set);
  }
  throw std::invalid_argument("DTK_CPU_ISA is '" + std::string(wanted) + "'; this build on this CPU has " +
                              names);
}

}  // namespace

const KernelTable& kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

std::vector<std::string> instruction_sets() { return names_of(automatic_kernels()); }

std::vector<std::string> optional_instruction_sets() { return names_of(optional_kernels()); }

void throw_if(const TableError& error, const char* table_name, std::int64_t num_pool_blocks,
              std::int64_t block_size) {
  const std::string value = std::to_string(error.value);
  if (error.kind == TableError::kBlockId) {
    throw std::invalid_argument(std::string(table_name) + " holds " + value +
                                "; ids are -1 (no block) or below " + std::to_string(num_pool_blocks) +
                                ", the pool size");
  }
  if (error.kind == TableError::kBlockLength) {
    throw std::invalid_argument("block_lengths holds " + value + "; lengths must be in 0.." +
                                std::to_string(block_size) + ", the block size");
  }
}

}  // namespace dtk
