#include "weft/optim/loss_scale.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

LossScale small() { return LossScale::dynamic_from({.initial = 8, .min = 2}, 3, 2); }

TEST(LossScale, DoublesAfterAWindowOfGoodSteps) {
  LossScale s = small();
  for (int i = 0; i < 2; ++i) s.count_good();
  EXPECT_EQ(s.state.scale, 8);
  s.count_good();
  EXPECT_EQ(s.state.scale, 16);
  s.count_good();
  s.count_good();
  s.count_overflow();  // the window begins again
  s.count_good();
  s.count_good();
  EXPECT_EQ(s.state.scale, 16);
  s.count_good();
  EXPECT_EQ(s.state.scale, 32);
  EXPECT_EQ(s.state.skipped_steps, 1);
}

TEST(LossScale, HalvesFromTheHysteresisthOverflowOn) {
  LossScale s = small();
  for (const double expected : {8.0, 4.0, 2.0}) {
    EXPECT_TRUE(s.may_skip());
    s.count_overflow();
    EXPECT_EQ(s.state.scale, expected);
  }
  for (int i = 0; i < 3; ++i) s.count_good();
  EXPECT_EQ(s.state.scale, 4);
  s.count_overflow();  // it doubled: there is hysteresis again
  EXPECT_EQ(s.state.scale, 4);
}

TEST(LossScale, CannotSkipAtTheLeast) {
  LossScale s = small();
  for (int i = 0; i < 3; ++i) s.count_overflow();
  EXPECT_EQ(s.state.scale, 2);
  EXPECT_FALSE(s.may_skip());
  EXPECT_FALSE(LossScale().may_skip());
}

TEST(LossScale, AFixedOneStaysAndSkips) {
  LossScale s = LossScale::fixed_at(128);
  for (int i = 0; i < 5; ++i) s.count_overflow();
  for (int i = 0; i < 2000; ++i) s.count_good();
  EXPECT_EQ(s.state.scale, 128);
  EXPECT_TRUE(s.may_skip());
  EXPECT_EQ(s.state.skipped_steps, 5);
}

}  // namespace
}  // namespace weft
