#include "engine/cache/paged_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace millrace {
namespace {

using Groups = PagedCache::Groups;

struct Text {
  Text(int64_t length, Token first, const char* the_salt = "")
      : tokens(static_cast<size_t>(length)), salt(the_salt) {
    std::iota(tokens.begin(), tokens.end(), first);
    chain = PrefixChain(16, salt, 0);
    chain.extend(tokens);
  }
  std::vector<Token> tokens;
  std::string salt;
  PrefixChain chain;
};

PagedCacheOptions options(std::vector<CacheGroup> groups) {
  PagedCacheOptions o;
  o.groups = std::move(groups);
  return o;
}

PageTable fill(PagedCache& cache, const Text& t) {
  PageTable table = cache.open(cache.match(t.chain, t.tokens, t.salt, 0));
  // In chunks: a window group holds only what it needs.
  const auto size = static_cast<int64_t>(t.tokens.size());
  for (int64_t end = std::min<int64_t>(7, size);; end = std::min(end + 7, size)) {
    cache.grow(table, end, Groups::all);
    cache.commit(table, t.chain, t.tokens, t.salt, end);
    if (end == size) break;
  }
  return table;
}

int64_t hit(const PagedCache& cache, const Text& t, int64_t limit) {
  return 16 * cache.match(t.chain, t.tokens, t.salt, limit).num_blocks();
}

TEST(PagedCache, CapacityIsThatOfAnEmptyCache) {
  EXPECT_EQ(PagedCache(options({{0, 7}})).capacity_tokens(), 112);
  EXPECT_EQ(PagedCache(options({{0, 7}, {16, 1}})).capacity_tokens(), 16);
  // One row of window 17 touches at most two blocks; of 18, three.
  EXPECT_EQ(PagedCache(options({{17, 2}})).capacity_tokens(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(PagedCache(options({{18, 2}})).capacity_tokens(), 32);
  EXPECT_EQ(PagedCache(options({{0, 7}, {18, 3}})).capacity_tokens(), 112);
}

TEST(PagedCache, FindsFullBlocksUpToTheLimit) {
  PagedCache cache(options({{0, 16}}));
  const Text t(40, 0);
  {
    PageTable table = fill(cache, t);
    EXPECT_EQ(cache.used(), 3);
  }
  EXPECT_EQ(cache.used(), 0);
  EXPECT_EQ(cache.cached(), 2);
  EXPECT_EQ(hit(cache, t, 40), 32);
  EXPECT_EQ(hit(cache, t, 32), 32);
  EXPECT_EQ(hit(cache, t, 31), 16);
  EXPECT_EQ(hit(cache, t, 15), 0);
  EXPECT_EQ(hit(cache, Text(40, 1), 40), 0);
  EXPECT_EQ(hit(cache, Text(40, 0, "x"), 40), 0);
  cache.reset();
  EXPECT_EQ(hit(cache, t, 40), 0);
  EXPECT_EQ(cache.num_nodes(), 0);
}

TEST(PagedCache, OffMeansOff) {
  PagedCacheOptions o = options({{0, 16}, {20, 16}});
  o.prefix_caching = false;
  PagedCache cache(o);
  const Text t(200, 0);
  {
    PageTable table = fill(cache, t);
    EXPECT_LE(cache.used(), 13 + 3);
  }
  EXPECT_EQ(cache.used() + cache.cached() + cache.num_nodes(), 0);
}

TEST(PagedCache, AWindowGroupHoldsOnlyItsWindow) {
  for (const int window : {1, 2, 15, 16, 17, 33, 100}) {
    PagedCache cache(options({{window, 40}}));
    const Text t(320, 0);
    PageTable table = fill(cache, t);
    // The next row, at 320, reads from 320 - window + 1 on.
    const int64_t first = std::min<int64_t>(320, 320 - window + 1) / 16;
    for (int64_t b = 0; b < 20; ++b)
      EXPECT_EQ(table.blocks(0)[static_cast<size_t>(b)] >= 0, b >= first) << window;
    EXPECT_EQ(cache.used(), 20 - first);
  }
}

TEST(PagedCache, AHitNeedsTheWindowsBlocksToo) {
  PagedCache cache(options({{0, 40}, {20, 4}}));
  const Text a(160, 0);
  { PageTable table = fill(cache, a); }
  // The window group has blocks for the end only: 4 in all, the oldest evicted.
  EXPECT_EQ(hit(cache, a, 160), 160);
  EXPECT_EQ(hit(cache, a, 159), 144);
  EXPECT_EQ(hit(cache, a, 100), 0);
  {
    const PagedCache::Match m = cache.match(a.chain, a.tokens, a.salt, 160);
    PageTable table = cache.open(m);
    EXPECT_GE(table.blocks(0)[0], 0);
    EXPECT_EQ(table.blocks(1)[7], -1);
    EXPECT_GE(table.blocks(1)[8], 0);
    EXPECT_EQ(cache.used(), 12);
  }
  // Another text pushes a's window out; the full group's blocks alone are no hit.
  { PageTable table = fill(cache, Text(64, 1000)); }
  EXPECT_EQ(hit(cache, a, 160), 0);
  EXPECT_EQ(cache.used(), 0);
}

TEST(PagedCache, FitsCountsHitsThatLieIdle) {
  PagedCache cache(options({{0, 4}}));
  const Text t(64, 0);
  { PageTable table = fill(cache, Text(32, 0)); }
  const PagedCache::Match m = cache.match(t.chain, t.tokens, t.salt, 63);
  EXPECT_EQ(m.num_blocks(), 2);
  EXPECT_TRUE(cache.fits(m, 64, 0));
  EXPECT_FALSE(cache.fits(m, 64, 1));
  EXPECT_FALSE(cache.fits(m, 65, 0));
  PageTable holds = cache.open(m);
  EXPECT_TRUE(cache.fits(m, 64, 0)) << "hits in use cost nothing";
  EXPECT_EQ(cache.growable_end(holds, Groups::all), 64);
}

TEST(PagedCache, TheEndOfATextIsEvictedBeforeItsBeginning) {
  PagedCache cache(options({{0, 4}}));
  const Text t(64, 0);
  { PageTable table = fill(cache, t); }
  { PageTable table = fill(cache, Text(20, 500)); }
  EXPECT_EQ(hit(cache, t, 64), 32);
}

}  // namespace
}  // namespace millrace
