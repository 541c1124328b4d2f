#include "weft/optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// Worked by hand: 4 steps of warm-up, 12 in all, from 1 to 0.2.
TEST(LrSchedule, EveryStyleFromWarmUpToBeyondItsEnd) {
  using Style = LrSchedule::Style;
  LrSchedule s{.lr = 1, .min_lr = 0.2, .warmup_steps = 4, .decay_steps = 12, .wsd_decay_steps = 2};
  for (const Style style : {Style::constant, Style::linear, Style::cosine, Style::wsd}) {
    s.style = style;
    for (int64_t step = 0; step < 4; ++step) EXPECT_DOUBLE_EQ(s.at(step), 0.25 * double(step + 1));
    EXPECT_DOUBLE_EQ(s.at(4), 1);
    for (const int64_t end : {12, 13, 1000}) EXPECT_DOUBLE_EQ(s.at(end), style == Style::constant ? 1 : 0.2);
  }
  s.style = Style::linear;
  EXPECT_DOUBLE_EQ(s.at(6), 0.8);
  EXPECT_DOUBLE_EQ(s.at(10), 0.4);
  s.style = Style::cosine;
  EXPECT_DOUBLE_EQ(s.at(8), 0.6);                                 // half way
  EXPECT_DOUBLE_EQ(s.at(6), 0.6 + 0.4 * 0.70710678118654752440);  // cos(pi / 4)
  s.style = Style::wsd;
  EXPECT_DOUBLE_EQ(s.at(10), 1);
  EXPECT_DOUBLE_EQ(s.at(11), 0.6);
}

TEST(LrSchedule, WithoutWarmUpTheFirstStepHasThePeak) {
  const LrSchedule s{.style = LrSchedule::Style::cosine, .lr = 3e-4, .min_lr = 0, .decay_steps = 10};
  EXPECT_DOUBLE_EQ(s.at(0), 3e-4);
}

}  // namespace
}  // namespace weft
