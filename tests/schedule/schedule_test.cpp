#include "weft/schedule/schedule.h"

#include <gtest/gtest.h>

#include <map>

#include "weft/base/error.h"

namespace weft {
namespace {

TEST(Schedule, OneStageAlternatesForwardAndBackward) {
  EXPECT_EQ(to_string(one_f_one_b({}, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(to_string(gpipe({}, 3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(to_string(zero_bubble_h1({}, 2)), "F0 D0 W0 F1 D1 W1");
}

TEST(Schedule, FirstOfFourStagesWarmsUpWithFour) {
  EXPECT_EQ(to_string(one_f_one_b({.stage = 0, .num_stages = 4}, 6)), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(to_string(one_f_one_b({.stage = 3, .num_stages = 4}, 2)), "F0 B0 F1 B1");
}

TEST(Schedule, EveryMicroBatchGoesForwardThenBackwardOnce) {
  for (const char* name : {"gpipe", "1f1b", "zb_h1"}) {
    for (int stages = 1; stages <= 4; ++stages) {
      for (int stage = 0; stage < stages; ++stage) {
        for (int64_t m = 1; m <= 9; ++m) {
          std::map<int64_t, std::string> seen;
          for (const Action& a : schedule_named(name, {stage, stages}, m)) seen[a.micro_batch] += char(a.what);
          ASSERT_EQ(seen.size(), size_t(m)) << name;
          for (const auto& [mb, actions] : seen)
            EXPECT_TRUE(actions == "FB" || actions == "FDW") << name << mb << actions;
        }
      }
    }
  }
}

TEST(Schedule, LivenessCountsWhatIsKept) {
  const Liveness one = liveness(one_f_one_b({}, 8));
  EXPECT_EQ(one.till_dgrad, 1);
  EXPECT_EQ(one.till_wgrad, 1);
  EXPECT_EQ(one.dgrad_till_wgrad, 1);
  EXPECT_EQ(liveness(gpipe({}, 8)).till_wgrad, 8);
  const Liveness last = liveness(zero_bubble_h1({.stage = 3, .num_stages = 4}, 8));
  EXPECT_EQ(last.till_dgrad, 1);
  EXPECT_EQ(last.till_wgrad, 4);  // three held back, and the one that runs
  EXPECT_EQ(last.dgrad_till_wgrad, 4);
}

TEST(Schedule, AnUnknownNameIsRefusedWithTheKnownOnes) {
  try {
    schedule_named("1f2b", {}, 1);
    FAIL();
  } catch (const ConfigError& e) { EXPECT_NE(std::string(e.what()).find("1f1b"), std::string::npos); }
}

}  // namespace
}  // namespace weft
