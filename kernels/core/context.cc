#include "kernels/core/context.h"

namespace millrace {

CpuLevel best_cpu_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
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
