#include "engine/base/anonymous_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace millrace {
namespace {

TEST(AnonymousMemory, IsZeroedAndAlignedToItsKindOfPage) {
  const auto offset = [](const AnonymousMemory& memory, size_t page) {
    return reinterpret_cast<uintptr_t>(memory.data()) % page;
  };
  const AnonymousMemory small = AnonymousMemory::map(1);
  EXPECT_EQ(small.size(), size_t{4} << 10);
  EXPECT_EQ(offset(small, size_t{4} << 10), 0u);
  for (int i = 0; i < 3; ++i) {
    const AnonymousMemory large = AnonymousMemory::map((size_t{2} << 20) + 1);
    EXPECT_EQ(large.size(), size_t{4} << 20);
    EXPECT_EQ(offset(large, size_t{2} << 20), 0u);
    EXPECT_EQ(std::count(large.data(), large.data() + large.size(), 0),
              static_cast<std::ptrdiff_t>(large.size()));
  }
}

TEST(AnonymousMemory, HasOneOwner) {
  AnonymousMemory memory = AnonymousMemory::map(100);
  memory.data()[99] = 'x';
  AnonymousMemory next = std::move(memory);
  EXPECT_FALSE(memory);
  EXPECT_EQ(next.data()[99], 'x');
  next = AnonymousMemory();
  EXPECT_FALSE(next);
}

TEST(AnonymousMemory, IsEmptyWhereThereIsNoRoom) {
  EXPECT_FALSE(AnonymousMemory::map(0));
  EXPECT_FALSE(AnonymousMemory::map(SIZE_MAX));
  EXPECT_FALSE(AnonymousMemory::map(SIZE_MAX / 2 - 5));
}

}  // namespace
}  // namespace millrace
