#include "engine/cache/prefix_index.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

const std::vector<Token> kA = {1, 2, 3, 4}, kB = {5, 6, 7, 8};

TEST(PrefixIndex, EqualHashesAreNotTrusted) {
  PrefixIndex index({8});
  // Every key has the same hash: only tokens, parent and salt tell them apart.
  const Hash128 same{1, 2};
  PrefixIndex::Node* a = index.find_or_add({nullptr, same, kA, ""});
  index.attach(a, 0, 0);
  PrefixIndex::Node* b = index.find_or_add({nullptr, same, kB, ""});
  index.attach(b, 0, 1);
  PrefixIndex::Node* under_a = index.find_or_add({a, same, kB, ""});
  index.attach(under_a, 0, 2);
  EXPECT_EQ(index.find({nullptr, same, kA, ""}), a);
  EXPECT_EQ(index.find({nullptr, same, kB, ""}), b);
  EXPECT_EQ(index.find({a, same, kB, ""}), under_a);
  EXPECT_EQ(index.find({b, same, kB, ""}), nullptr);
  EXPECT_EQ(index.find({nullptr, same, kA, "salt"}), nullptr);
  for (const BlockId block : {0, 1, 2}) index.detach(0, block);
  EXPECT_EQ(index.num_nodes(), 0);
}

TEST(PrefixIndex, AParentLivesAsLongAsAChildBlockOrPin) {
  PrefixIndex index({4, 4});
  PrefixIndex::Node* a = index.find_or_add({nullptr, {1, 0}, kA, ""});
  index.attach(a, 0, 3);
  index.attach(a, 1, 2);
  PrefixIndex::Node* b = index.find_or_add({a, {2, 0}, kB, ""});
  index.attach(b, 1, 0);
  index.detach(0, 3);
  index.detach(1, 2);
  EXPECT_EQ(index.num_nodes(), 2);
  {
    PrefixIndex::Pin pin(index, b);
    index.detach(1, 0);
    EXPECT_EQ(index.num_nodes(), 2);
    PrefixIndex::Pin moved = std::move(pin);
    EXPECT_EQ(index.find({a, {2, 0}, kB, ""}), b);
  }
  EXPECT_EQ(index.num_nodes(), 0);
}

TEST(PrefixIndex, ALongChainGoesWithoutRecursion) {
  PrefixIndex index({1});
  PrefixIndex::Node* node = nullptr;
  for (uint64_t i = 0; i < 200'000; ++i) node = index.find_or_add({node, {i, i}, kA, "s"});
  index.attach(node, 0, 0);
  index.detach(0, 0);
  EXPECT_EQ(index.num_nodes(), 0);
}

TEST(PrefixChain, DependsOnSaltSeedAndEveryEarlierToken) {
  std::vector<Token> tokens(64);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i);
  const auto last = [](std::vector<Token> t, std::string_view salt, uint64_t seed) {
    PrefixChain chain(16, salt, seed);
    chain.extend(t);
    return chain[chain.num_blocks() - 1];
  };
  const Hash128 base = last(tokens, "", 1);
  EXPECT_EQ(base, last(tokens, "", 1));
  EXPECT_FALSE(base == last(tokens, "a", 1));
  EXPECT_FALSE(base == last(tokens, "", 2));
  for (const size_t i : {0u, 15u, 16u, 63u}) {
    std::vector<Token> other = tokens;
    other[i] += 1;
    EXPECT_FALSE(base == last(other, "", 1));
  }
  // Grown token by token, it is the same chain.
  PrefixChain grown(16, "", 1);
  for (size_t n = 0; n <= tokens.size(); ++n) {
    grown.extend(std::span<const Token>(tokens).first(n));
    EXPECT_EQ(grown.num_blocks(), static_cast<int64_t>(n / 16));
  }
  EXPECT_EQ(grown[3], base);
}

}  // namespace
}  // namespace millrace
