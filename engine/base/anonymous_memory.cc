#include "engine/base/anonymous_memory.h"

#include <sys/mman.h>

#include <cstdint>

namespace millrace {
namespace {

constexpr size_t kPage = size_t{4} << 10;
constexpr size_t kHugePage = size_t{2} << 20;

char* map_pages(size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

// Maps one huge page too many and gives back what lies before and after the aligned part.
char* map_huge_pages(size_t size) {
  char* whole = map_pages(size + kHugePage);
  if (whole == nullptr) return nullptr;
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(whole) % kHugePage) % kHugePage;
  if (before > 0) ::munmap(whole, before);
  if (before < kHugePage) ::munmap(whole + before + size, kHugePage - before);
  ::madvise(whole + before, size, MADV_HUGEPAGE);
  return whole + before;
}

}  // namespace

AnonymousMemory AnonymousMemory::map(size_t bytes) {
  AnonymousMemory memory;
  if (bytes == 0 || bytes > SIZE_MAX / 2) return memory;
  const size_t step = bytes >= kHugePage ? kHugePage : kPage;
  const size_t size = (bytes + step - 1) / step * step;
  memory.data_ = step == kHugePage ? map_huge_pages(size) : map_pages(size);
  if (memory.data_ != nullptr) memory.size_ = size;
  return memory;
}

AnonymousMemory::~AnonymousMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace millrace
