#include "kernels/core/context.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace millrace {

#if defined(__x86_64__)
namespace {

// __builtin_cpu_supports does not know this one in every compiler.
bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

}  // namespace
#endif

CpuLevel best_cpu_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16");
  if (avx512) return CpuLevel::avx512;
  if (avx2) return CpuLevel::avx2;
#endif
  return CpuLevel::reference;
}

const char* cpu_level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::reference: return "reference";
    case CpuLevel::avx2: return "avx2";
    case CpuLevel::avx512: return "avx512";
  }
  return "?";
}

std::optional<CpuLevel> parse_cpu_level(std::string_view name) {
  for (const CpuLevel level : {CpuLevel::reference, CpuLevel::avx2, CpuLevel::avx512})
    if (name == cpu_level_name(level)) return level;
  return std::nullopt;
}

}  // namespace millrace
