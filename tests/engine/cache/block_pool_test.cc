#include "engine/cache/block_pool.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

struct Pool {
  explicit Pool(int64_t n) : pool(n, [this](BlockId id) { evicted.push_back(id); }) {}
  std::vector<BlockId> evicted;
  BlockPool pool;
};

TEST(BlockPool, HandsOutEveryBlockOnceAndTakesThemBack) {
  Pool p(3);
  {
    std::vector<BlockRef> refs;
    std::vector<bool> seen(3, false);
    for (int i = 0; i < 3; ++i) {
      refs.push_back(p.pool.allocate());
      ASSERT_TRUE(refs.back());
      EXPECT_FALSE(seen[static_cast<size_t>(refs.back().id())]);
      seen[static_cast<size_t>(refs.back().id())] = true;
    }
    EXPECT_FALSE(p.pool.allocate());
    EXPECT_EQ(p.pool.used(), 3);
    EXPECT_EQ(p.pool.available(), 0);
  }
  EXPECT_EQ(p.pool.used(), 0);
  EXPECT_EQ(p.pool.available(), 3);
  EXPECT_EQ(p.pool.cached(), 0);
  EXPECT_TRUE(p.evicted.empty());
}

TEST(BlockPool, ASharedBlockIsFreeAfterTheLastReference) {
  Pool p(1);
  BlockRef a = p.pool.allocate();
  BlockRef b = p.pool.share(a.id());
  a.release();
  a.release();
  EXPECT_EQ(p.pool.used(), 1);
  BlockRef c = std::move(b);
  EXPECT_FALSE(b);
  EXPECT_EQ(p.pool.used(), 1);
  c = BlockRef();
  EXPECT_EQ(p.pool.used(), 0);
}

TEST(BlockPool, KeptBlocksAreEvictedOldestFirstAndOnlyWhenNothingIsFree) {
  Pool p(4);
  std::vector<BlockRef> refs;
  for (int i = 0; i < 3; ++i) {
    refs.push_back(p.pool.allocate());
    p.pool.keep(refs.back().id());
  }
  const std::vector<BlockId> ids = {refs[0].id(), refs[1].id(), refs[2].id()};
  for (const size_t i : {1, 0, 2}) refs[i].release();
  EXPECT_EQ(p.pool.cached(), 3);
  EXPECT_EQ(p.pool.available(), 4);
  // A hit makes it the youngest.
  p.pool.share(ids[1]).release();
  std::vector<BlockRef> taken;
  taken.push_back(p.pool.allocate());
  EXPECT_TRUE(p.evicted.empty());
  for (int i = 0; i < 3; ++i) taken.push_back(p.pool.allocate());
  EXPECT_EQ(p.evicted, (std::vector<BlockId>{ids[0], ids[2], ids[1]}));
  taken.clear();
  EXPECT_EQ(p.pool.cached(), 0) << "what was evicted is forgotten";
}

TEST(BlockPool, EvictAllSparesWhatIsInUse) {
  Pool p(2);
  BlockRef a = p.pool.allocate(), b = p.pool.allocate();
  p.pool.keep(a.id());
  p.pool.keep(b.id());
  a.release();
  p.pool.evict_all();
  EXPECT_EQ(p.evicted.size(), 1u);
  EXPECT_EQ(p.pool.used(), 1);
  b.release();
  EXPECT_EQ(p.pool.cached(), 1);
}

TEST(BlockPoolDeathTest, RefusesToShareAFreeBlock) {
  Pool p(1);
  EXPECT_DEATH(p.pool.share(0), "shared");
}

}  // namespace
}  // namespace millrace
