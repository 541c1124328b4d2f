#include "weft/schedule/block_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"

namespace weft {
namespace {

BlockCosts uniform(int64_t num_blocks, double embedding = 0, double head = 0) {
  return {.blocks = std::vector<double>(size_t(num_blocks), 1), .embedding = embedding, .head = head};
}

double dearest(const BlockLayout& layout, const BlockCosts& costs) {
  std::vector<double> all;
  auto block = costs.blocks.begin();
  for (const int64_t count : layout) {
    all.push_back(std::accumulate(block, block + count, 0.0));
    block += count;
  }
  all.front() += costs.embedding;
  all.back() += costs.head;
  return *std::max_element(all.begin(), all.end());
}

// The cheapest of all cuts, by trying each.
double dearest_of_all_cuts(const BlockCosts& costs, BlockLayout& layout, size_t piece, int64_t left) {
  if (piece + 1 == layout.size()) {
    layout[piece] = left;
    return dearest(layout, costs);
  }
  double best = 1e300;
  for (int64_t count = 1; count <= left - int64_t(layout.size() - piece - 1); ++count) {
    layout[piece] = count;
    best = std::min(best, dearest_of_all_cuts(costs, layout, piece + 1, left - count));
  }
  return best;
}

TEST(BlockLayout, EqualBlocksAreDividedEquallyAndTheFrontHasFewer) {
  EXPECT_EQ(balanced_layout(uniform(12), 4), (BlockLayout{3, 3, 3, 3}));
  EXPECT_EQ(balanced_layout(uniform(10), 4), (BlockLayout{2, 2, 3, 3}));
  EXPECT_EQ(balanced_layout(uniform(5), 1), BlockLayout{5});
}

TEST(BlockLayout, EmbeddingAndHeadTakeBlocksFromTheEnds) {
  EXPECT_EQ(balanced_layout(uniform(14, 1, 1), 4), (BlockLayout{3, 4, 4, 3}));
  EXPECT_EQ(balanced_layout(uniform(14, 0, 2), 4), (BlockLayout{4, 4, 4, 2}));
  EXPECT_EQ(balanced_layout(uniform(9, 0, 10), 4), (BlockLayout{2, 3, 3, 1}));  // the head alone is dearest
  EXPECT_EQ(balanced_layout(uniform(9, 0, 10), 4, 0), (BlockLayout{3, 3, 3, 0}));
}

TEST(BlockLayout, TheDearestVirtualStageIsAsCheapAsCanBe) {
  uint64_t state = 1;
  const auto next = [&] { return double((state = state * 6364136223846793005u + 1442695040888963407u) >> 60); };
  for (int pieces = 1; pieces <= 5; ++pieces) {
    for (int64_t blocks = pieces; blocks <= 10; ++blocks) {
      BlockCosts costs{.blocks = {}, .embedding = next(), .head = next()};
      for (int64_t i = 0; i < blocks; ++i) costs.blocks.push_back(next() + 0.1);
      const BlockLayout layout = balanced_layout(costs, pieces);
      BlockLayout any(static_cast<size_t>(pieces));
      EXPECT_NEAR(dearest(layout, costs), dearest_of_all_cuts(costs, any, 0, blocks), 1e-9) << to_string(layout);
      EXPECT_GE(*std::min_element(layout.begin(), layout.end()), 1);
    }
  }
}

TEST(BlockLayout, EveryVirtualStageHasItsLeastNumberOfBlocksUnlessThereAreTooFew) {
  EXPECT_EQ(balanced_layout(uniform(8, 5, 5), 4, 2), (BlockLayout{2, 2, 2, 2}));
  EXPECT_EQ(balanced_layout(uniform(8, 5, 5), 4, 3), (BlockLayout{2, 2, 2, 2}));
  EXPECT_EQ(balanced_layout(uniform(2, 1, 1), 4), (BlockLayout{0, 1, 1, 0}));
  EXPECT_EQ(balanced_layout(uniform(0, 1, 1), 2), (BlockLayout{0, 0}));
}

TEST(BlockLayout, BlocksWithoutCostAreDividedToo) {
  const BlockCosts free{.blocks = {0, 0, 0}};
  EXPECT_EQ(balanced_layout(free, 3), (BlockLayout{1, 1, 1}));
}

TEST(BlockLayout, ALayoutIsTheListOfItsCounts) {
  EXPECT_EQ(to_string(BlockLayout{3, 4, 4, 3}), "[3, 4, 4, 3]");
  EXPECT_EQ(first_block({3, 4, 4, 3}, 0), 0);
  EXPECT_EQ(first_block({3, 4, 4, 3}, 2), 7);
}

TEST(BlockLayout, WhatIsWrongWithALayoutIsSaid) {
  EXPECT_EQ(layout_fault({3, 4, 4, 3}, 4, 14), "");
  EXPECT_EQ(layout_fault({0, 2, 0}, 3, 2), "");
  EXPECT_EQ(layout_fault({3, 4}, 3, 7), "2 counts for 3 virtual stages");
  EXPECT_EQ(layout_fault({3, 5}, 2, 7), "the counts add up to 8, and the model has 7 blocks");
  EXPECT_EQ(layout_fault({-1, 8}, 2, 7), "-1 is no number of blocks");
  EXPECT_NE(layout_fault({3, 0, 4}, 3, 7).find("virtual stage 1 would have nothing to do"), std::string::npos);
}

TEST(BlockLayout, TheNearestLayoutHasNoFault) {
  EXPECT_EQ(nearest_layout({6, 2}, 7), (BlockLayout{5, 2}));
  EXPECT_EQ(nearest_layout({3, 0, 4}, 7), (BlockLayout{3, 1, 3}));
  EXPECT_EQ(nearest_layout({3, 3, 3}, 13), (BlockLayout{5, 4, 4}));
  EXPECT_EQ(nearest_layout({2, 1, 2}, 1), (BlockLayout{0, 1, 0}));
  EXPECT_EQ(nearest_layout({2000000000, 2}, 7), (BlockLayout{5, 2}));
  EXPECT_EQ(nearest_layout({3}, 2), BlockLayout{2});
  EXPECT_EQ(nearest_layout({1, 1, 1, 1}, 1), std::nullopt);
  for (int64_t i = 0; i < 256; ++i)
    for (int64_t blocks = 2; blocks < 14; ++blocks)
      EXPECT_EQ(layout_fault(*nearest_layout({i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6}, blocks), 4, blocks), "");
}

}  // namespace
}  // namespace weft
