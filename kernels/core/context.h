// Ctx: everything an op needs besides its tensors. Made by the executor, one per device thread (or
// rank); ops are called by that thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/core/arena.h"
#include "kernels/core/pool.h"

namespace millrace {

class Comm;

enum class Device : uint8_t { cpu, cuda };

// Instruction-set level of the CPU kernels, from the readable reference upwards.
enum class CpuLevel : uint8_t { reference, avx2, avx512 };

CpuLevel best_cpu_level();  // what cpuid and the operating system offer
const char* cpu_level_name(CpuLevel level);
std::optional<CpuLevel> parse_cpu_level(std::string_view name);  // "reference", "avx2", "avx512"

struct Ctx {
  Device device = Device::cpu;
  CpuLevel cpu_level = CpuLevel::reference;
  const Pool* pool = nullptr;
  Arena* arena = nullptr;  // temporaries of ops and models
  Comm* comm = nullptr;    // null: one rank

  // In a dry run ops check shapes and take their scratch memory but touch no data.
  bool dry_run() const { return arena->measuring(); }
};

}  // namespace millrace
