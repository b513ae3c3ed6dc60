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

std::vector<const KernelTable*> usable_kernels() {
  std::vector<const KernelTable*> usable = {&kGenericKernels};
#if defined(DTK_HAVE_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c()) {
    usable.push_back(&kAvx2Kernels);
  }
#endif
  return usable;
}

const KernelTable& choose() {
  const auto usable = usable_kernels();
  const char* wanted = std::getenv("DTK_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return *usable.back();
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

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const KernelTable* table : usable_kernels()) names.emplace_back(table->instruction_set);
  return names;
}

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
