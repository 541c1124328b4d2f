// When the shares of data-parallel ranks change, and to which.
#include "weft/train/share_balance.h"

#include <gtest/gtest.h>

#include <limits>

namespace weft {
namespace {

using Times = std::vector<double>;
using Shares = std::vector<int64_t>;

// What comes of so many windows with the same times.
std::optional<ShareBalance::Change> after(ShareBalance& balance, const Times& times, int64_t windows) {
  std::optional<ShareBalance::Change> change;
  for (int64_t i = 0; i < windows && !change; ++i) change = balance.add(times);
  return change;
}

TEST(ShareBalance, ARankThatIsSlowForThreeWindowsGetsAShareByItsSpeed) {
  ShareBalance balance({4, 4});
  EXPECT_FALSE(after(balance, {1, 3}, ShareBalance::kWindows - 1));
  const auto change = after(balance, {1, 3}, 1);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->shares, (Shares{6, 2}));
  EXPECT_EQ(change->slowest, 1);
  EXPECT_DOUBLE_EQ(change->slowest_s, 3);
  EXPECT_DOUBLE_EQ(change->then_s, 1.5);
}

TEST(ShareBalance, AWindowInWhichItKeepsUpBeginsAnew) {
  ShareBalance balance({4, 4});
  EXPECT_FALSE(after(balance, {1, 3}, ShareBalance::kWindows - 1));
  EXPECT_FALSE(after(balance, {1, 1}, 1));
  EXPECT_FALSE(after(balance, {1, 3}, ShareBalance::kWindows - 1));
  EXPECT_TRUE(after(balance, {1, 3}, 1));
}

TEST(ShareBalance, WhatSavesLessThanATenthStays) {
  ShareBalance equal({8, 8}), unequal({6, 2});
  EXPECT_FALSE(after(equal, {1, 1.1}, 20));
  EXPECT_FALSE(after(unequal, {1.5, 1.5}, 20)) << "it would go back and forth";
  EXPECT_FALSE(after(unequal, {1.5, 1.6}, 20));
}

// No rank is slower than the others by then: it is quicker.
TEST(ShareBalance, ARankThatIsQuickAgainGetsItsShareBack) {
  ShareBalance balance({6, 2});
  const auto change = after(balance, {3, 1}, ShareBalance::kWindows);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->shares, (Shares{4, 4}));
}

TEST(ShareBalance, EveryRankKeepsAMicroBatch) {
  ShareBalance few({1, 1, 1}), many({2, 2});
  EXPECT_FALSE(after(few, {1, 9, 1}, 20));
  const auto change = after(many, {1, 90}, ShareBalance::kWindows);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->shares, (Shares{3, 1}));
}

// Those for which there is no room are not asked for again, and others are.
TEST(ShareBalance, RefusedSharesAreNotFoundAgain) {
  ShareBalance balance({4, 4});
  balance.refuse({6, 2});
  EXPECT_FALSE(after(balance, {1, 3}, 20));
  const auto change = after(balance, {1, 7}, ShareBalance::kWindows);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->shares, (Shares{7, 1}));
}

TEST(ShareBalance, TimesThatNobodyMeasuredChangeNothing) {
  ShareBalance balance({4, 4});
  for (const double none :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(after(balance, {1, none}, 20)) << none;
}

}  // namespace
}  // namespace weft
