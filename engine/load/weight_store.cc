#include "engine/load/weight_store.h"

#include <sys/mman.h>

#include <utility>

namespace millrace {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallRegion = size_t{64} << 10;

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// A mapping of `size` bytes that begins at a multiple of a huge page. Null if there is no room.
char* map_huge_aligned(size_t size) {
  const size_t reserved = size + kHugePage;
  void* whole =
      ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(whole);
  char* aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(begin), kHugePage));
  const auto before = static_cast<size_t>(aligned - begin);
  if (before > 0) ::munmap(begin, before);
  ::munmap(aligned + size, reserved - before - size);
  ::madvise(aligned, size, MADV_HUGEPAGE);
  return aligned;
}

char* map_small(size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

}  // namespace

WeightStore::~WeightStore() {
  for (const Region& region : regions_) ::munmap(region.memory, region.size);
}

WeightStore::WeightStore(WeightStore&& other) noexcept { *this = std::move(other); }

WeightStore& WeightStore::operator=(WeightStore&& other) noexcept {
  std::swap(regions_, other.regions_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void* WeightStore::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t need = round_up(bytes, kAlignment);
  if (regions_.empty() || regions_.back().size - regions_.back().used < need) {
    const bool huge = need >= kHugePage;
    const size_t size = round_up(need, huge ? kHugePage : kSmallRegion);
    char* memory = huge ? map_huge_aligned(size) : map_small(size);
    if (memory == nullptr) return nullptr;
    regions_.push_back({memory, size, 0});
  }
  Region& region = regions_.back();
  char* begin = region.memory + region.used;
  region.used += need;
  bytes_ += need;
  return begin;
}

}  // namespace millrace
