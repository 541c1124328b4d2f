#include "weft/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/liveness.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::liveness;
using testing::liveness_of_chunks;

TEST(Schedule, OneStageAlternatesForwardAndBackward) {
  EXPECT_EQ(to_string(one_f_one_b({}, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(to_string(gpipe({}, 3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(to_string(zero_bubble_h1({}, 2)), "F0 D0 W0 F1 D1 W1");
}

TEST(Schedule, FirstOfFourStagesWarmsUpWithFour) {
  EXPECT_EQ(to_string(one_f_one_b({.stage = 0, .num_stages = 4}, 6)), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(to_string(one_f_one_b({.stage = 3, .num_stages = 4}, 2)), "F0 B0 F1 B1");
}

// From the second rank on as in the papers' figures; checked by hand.
TEST(Schedule, TheListsOfTwoRanksAndFourMicroBatchesAreTheseTexts) {
  const auto texts = [](const char* name) {
    std::vector<std::string> all;
    for (const Schedule& s : schedules_of(pipeline_named(name, 2), 4)) all.push_back(to_string(s));
    return all;
  };
  EXPECT_EQ(texts("gpipe"), (std::vector<std::string>{"F0 F1 F2 F3 B0 B1 B2 B3", "F0 F1 F2 F3 B0 B1 B2 B3"}));
  EXPECT_EQ(texts("1f1b"), (std::vector<std::string>{"F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}));
  EXPECT_EQ(texts("interleaved_1f1b"),
            (std::vector<std::string>{"F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3",
                                      "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3"}));
  EXPECT_EQ(texts("zb_h1"),
            (std::vector<std::string>{"F0 F1 D0 W0 F2 D1 W1 F3 D2 W2 D3 W3", "F0 D0 F1 D1 W0 F2 D2 W1 F3 D3 W2 W3"}));
  EXPECT_EQ(texts("zbv"), (std::vector<std::string>{
                              "F0 F1 F2 F0.1 D0.1 W0.1 F1.1 D1.1 W1.1 F3 D0 W0 F2.1 D2.1 W2.1 D1 W1 F3.1 D3.1 W3.1 "
                              "D2 W2 D3 W3",
                              "F0 F0.1 F1 F1.1 D0.1 W0.1 F2 D0 W0 F2.1 D1.1 W1.1 F3 D1 W1 F3.1 D2.1 W2.1 D2 D3.1 D3 "
                              "W2 W3.1 W3"}));
}

TEST(Schedule, InterleavedLeavesOutWhatIsTooManyWhereTheStagesDoNotDivideTheMicroBatches) {
  EXPECT_EQ(to_string(interleaved_1f1b({.stage = 0, .num_stages = 2}, 2, 3)),
            "F0 F1 F0.1 F1.1 F2 B0.1 B1.1 F2.1 B0 B1 B2.1 B2");
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

// The bounds of each rank: p stages, s this one.
TEST(Schedule, NoRankKeepsMoreAliveThanItsSchedulePromises) {
  for (int p = 1; p <= 8; ++p) {
    for (int s = 0; s < p; ++s) {
      for (int m = 1; m <= 17; ++m) {
        const PipelinePosition at{s, p};
        SCOPED_TRACE(fmt::format("stage {} of {}, {} micro-batches", s, p, m));
        EXPECT_EQ(liveness(gpipe(at, m)).till_wgrad, m);
        EXPECT_EQ(liveness(one_f_one_b(at, m)), (Liveness{std::min(m, p - s), std::min(m, p - s), 1}));
        const Liveness h1 = liveness(zero_bubble_h1(at, m));
        EXPECT_EQ(h1.till_dgrad, std::min(m, p - s));
        EXPECT_EQ(h1.till_wgrad, std::min(m, p));  // as 1F1B's first stage
        EXPECT_EQ(h1.dgrad_till_wgrad, std::min(m, s + 1));
        EXPECT_LE(liveness(zero_bubble_v(at, m)).till_wgrad, 2 * p);
        for (int v = 2; v <= 4; ++v)
          EXPECT_LE(liveness(interleaved_1f1b(at, v, m)).till_wgrad, 2 * (p - s) - 1 + (v - 1) * p);
      }
    }
  }
}

TEST(Schedule, LivenessOfChunksCountsEachByItself) {
  const auto first = liveness_of_chunks(zero_bubble_v({.stage = 0, .num_stages = 4}, 17));
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0], (Liveness{8, 8, 1}));
  EXPECT_EQ(first[1], (Liveness{1, 1, 1}));
  const auto last = liveness_of_chunks(zero_bubble_v({.stage = 3, .num_stages = 4}, 17));
  EXPECT_EQ(last[0], (Liveness{5, 5, 4}));
  EXPECT_EQ(last[1], (Liveness{4, 4, 3}));
  EXPECT_EQ(liveness(zero_bubble_v({.stage = 3, .num_stages = 4}, 17)), (Liveness{8, 8, 7}));  // not all at once
  EXPECT_EQ(liveness_of_chunks(one_f_one_b({}, 3)), std::vector{liveness(one_f_one_b({}, 3))});
  EXPECT_TRUE(liveness_of_chunks({}).empty());
}

TEST(Schedule, ChunksOfZbvByThemselvesPeakAtOneMoreThanTogether) {
  for (int p = 1; p <= 8; ++p) {
    for (int s = 0; s < p; ++s) {
      int sum = 0;
      for (const Liveness& of_chunk : liveness_of_chunks(zero_bubble_v({s, p}, 17))) sum += of_chunk.till_wgrad;
      EXPECT_EQ(sum, 2 * p + 1);
    }
  }
}

TEST(Schedule, AnUnknownNameIsRefusedWithTheKnownOnes) {
  try {
    pipeline_named("1f2b", 1);
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(), "no pipeline schedule '1f2b'; there are gpipe, 1f1b, interleaved_1f1b, zb_h1, zbv");
  }
}

}  // namespace
}  // namespace weft
