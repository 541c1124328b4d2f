#include "weft/optim/spike_rule.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using Gaps = std::vector<SpikeState::Gap>;

// Medians 1 and 10, median distances 0.05 and 0.5.
SpikeState usual() { return {.losses = {1, 1.1, 0.9, 1}, .grad_norms = {10, 11, 9, 10}}; }

TEST(SpikeRule, FindsWhatIsAboveTheMedianBySoManyDeviations) {
  const SpikeRule rule{.sigma_factor = 6, .window = 4};
  const double limit = 1 + 6 * 1.4826 * 0.05;
  EXPECT_FALSE(rule.find(usual(), limit - 1e-9, 10));
  const auto loss = rule.find(usual(), limit + 1e-9, 10);
  ASSERT_TRUE(loss);
  EXPECT_TRUE(loss->is_of_loss);
  EXPECT_NEAR(loss->median, 1, 1e-15);
  EXPECT_NEAR(loss->limit, limit, 1e-12);
  EXPECT_FALSE(rule.find(usual(), 1, 10 * limit - 1e-9));
  const auto norm = rule.find(usual(), 1, 10 * limit + 1e-9);
  ASSERT_TRUE(norm);
  EXPECT_FALSE(norm->is_of_loss);
  EXPECT_FALSE(rule.find(usual(), -100, 0)) << "what falls is none";
}

TEST(SpikeRule, LossesThatRepeatHaveADeviationOfAHundredth) {
  const SpikeRule rule{.sigma_factor = 6, .window = 3};
  EXPECT_FALSE(rule.find({.losses = {2, 2, 2}, .grad_norms = {1, 1, 1}}, 2.1199, 1));
  EXPECT_TRUE(rule.find({.losses = {2, 2, 2}, .grad_norms = {1, 1, 1}}, 2.1201, 1));
  EXPECT_FALSE(rule.find({.losses = {-2, -2, -2}, .grad_norms = {1, 1, 1}}, -1.8801, 1)) << "an objective below 0";
  EXPECT_TRUE(rule.find({.losses = {-2, -2, -2}, .grad_norms = {1, 1, 1}}, -1.8799, 1));
}

// As of a batch of which all rewards are alike, where most are.
TEST(SpikeRule, NothingStandsOutOfAWindowThatIsZeroForTheMostPart) {
  const SpikeRule rule{.sigma_factor = 6, .window = 3};
  EXPECT_FALSE(rule.find({.losses = {0, 0, 0}, .grad_norms = {0, 0, 0}}, 0.1, 0.1));
  EXPECT_FALSE(rule.find({.losses = {1, 1, 1}, .grad_norms = {0, 5, 0}}, 1, 6));
  EXPECT_TRUE(rule.find({.losses = {0, 0, 0}, .grad_norms = {1, 1, 1}}, 0, 6)) << "the norms are judged all the same";
}

TEST(SpikeRule, OneThatWasTakenForUsualHardlyMovesTheLimit) {
  const SpikeRule rule{.sigma_factor = 6, .window = 5};
  const SpikeState state{.losses = {1, 1.1, 1000, 0.9, 1}, .grad_norms = {1, 1, 1, 1, 1}};
  EXPECT_TRUE(rule.find(state, 2, 1));
}

TEST(SpikeRule, JudgesNothingBeforeHalfAWindow) {
  const SpikeRule rule{.sigma_factor = 6, .window = 5};
  EXPECT_FALSE(rule.find({}, 1000, 1000));
  EXPECT_FALSE(rule.find({.losses = {1, 1}, .grad_norms = {1, 1}}, 1000, 1000));
  EXPECT_TRUE(rule.find({.losses = {1, 1, 1}, .grad_norms = {1, 1, 1}}, 1000, 1000));
}

TEST(SpikeRule, TheWindowHasTheLastSteps) {
  const SpikeRule rule{.window = 3};
  SpikeState state;
  for (int i = 1; i <= 5; ++i) rule.add(state, i, 10 * i);
  EXPECT_EQ(state.losses, (std::vector<double>{3, 4, 5}));
  EXPECT_EQ(state.grad_norms, (std::vector<double>{30, 40, 50}));
  SpikeRule{.window = 2}.add(state, 6, 60);  // a window that the run was given since
  EXPECT_EQ(state.losses, (std::vector<double>{5, 6}));
}

TEST(SpikeState, StepsReadOnBehindWhatTheRunHasGonePast) {
  SpikeState state;
  EXPECT_EQ(state.batch_of(40), 40);
  state.go_past(40, 44);
  EXPECT_EQ(state.batch_of(39), 39);
  EXPECT_EQ(state.batch_of(40), 45);
  EXPECT_EQ(state.batch_of(43), 48);
  state.go_past(40, 48);  // and once more, from the same checkpoint
  EXPECT_EQ(state.gaps, (Gaps{{40, 9}}));
  EXPECT_EQ(state.batch_of(40), 49);
  state.go_past(60, 70);
  EXPECT_EQ(state.gaps, (Gaps{{40, 9}, {60, 2}}));
  EXPECT_EQ(state.batch_of(59), 68);
  EXPECT_EQ(state.batch_of(60), 71);
  state.go_past(20, 75);  // from an older one, as the others were damaged
  EXPECT_EQ(state.gaps, (Gaps{{20, 56}}));
  EXPECT_EQ(state.batch_of(20), 76);
}

TEST(SpikeState, CountsThoseOfTheLastBatches) {
  const SpikeState state{.batches = {3, 7, 8, 20}};
  EXPECT_EQ(state.recent(20, 12), 1);
  EXPECT_EQ(state.recent(20, 13), 2);
  EXPECT_EQ(state.recent(20, 100), 4);
  EXPECT_EQ(state.recent(8, 2), 2);
}

}  // namespace
}  // namespace weft
