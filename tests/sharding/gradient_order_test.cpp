// Which rank has which micro-batch.
#include "weft/sharding/gradient_order.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

void expect_inverse(const GradientOrder& order) {
  std::vector<bool> seen(size_t(order.global_micro_batches()), false);
  for (int64_t r = 0; r < order.ranks; ++r) {
    const GradientOrder mine = order.of_rank(r);
    EXPECT_EQ(mine.rank, r);
    for (int64_t m = 0; m < mine.num_micro_batches; ++m) {
      const int64_t global = mine.global_of(m);
      ASSERT_LT(global, order.global_micro_batches());
      EXPECT_FALSE(seen[size_t(global)]) << global << " is on two ranks";
      seen[size_t(global)] = true;
      EXPECT_EQ(order.holder_of(global).rank, r);
      EXPECT_EQ(order.holder_of(global).micro_batch, m);
    }
  }
  for (const bool is : seen) EXPECT_TRUE(is);
}

TEST(GradientOrder, GivesEveryMicroBatchToOneRank) {
  expect_inverse({.num_micro_batches = 3, .ranks = 4});
  expect_inverse({.num_micro_batches = 3, .ranks = 4, .zero_stage = 2, .shards = 4});
  expect_inverse({.num_micro_batches = 5, .ranks = 3, .unequal = {5, 1, 3}});
}

TEST(GradientOrder, OfUnequalSharesIsTheOrderOfTheBatch) {
  const GradientOrder order{.num_micro_batches = 5, .tree = true, .ranks = 3, .unequal = {5, 1, 3}};
  EXPECT_EQ(order.global_micro_batches(), 9);
  EXPECT_EQ(order.num_leaves(), 9);
  EXPECT_EQ(order.busiest(), 0);
  EXPECT_EQ(order.of_rank(2).num_micro_batches, 3);
  EXPECT_EQ(order.of_rank(2).global_of(0), 6);
  EXPECT_EQ(order.of_rank(2).leaf_of(2), 8);
  EXPECT_TRUE(GradientOrder({.num_micro_batches = 5, .ranks = 3, .unequal = {5, 1, 3}}).of_rank(1).ends_leaf(0));
}

TEST(GradientOrder, OfUnequalSharesNeedsAsManyBuffersOnAllRanks) {
  const GradientOrder order{.num_micro_batches = 1, .tree = true, .ranks = 2, .unequal = {1, 7}};
  EXPECT_EQ(order.of_rank(0).num_buffers(), order.of_rank(1).num_buffers());
  EXPECT_EQ(order.num_buffers(), tree_buffers(8, {1, 7}));
}

}  // namespace
}  // namespace weft
