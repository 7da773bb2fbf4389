#include "engine/load/weight_store.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallRegion = size_t{64} << 10;

}  // namespace

void* WeightStore::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t need = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (regions_.empty() || regions_.back().memory.size() - regions_.back().used < need) {
    AnonymousMemory memory = AnonymousMemory::map(std::max(need, kSmallRegion));
    if (!memory) return nullptr;
    regions_.push_back({std::move(memory), 0});
  }
  Region& region = regions_.back();
  char* begin = region.memory.data() + region.used;
  region.used += need;
  bytes_ += need;
  return begin;
}

}  // namespace millrace
