// Shares of micro-batches by speed, and what ranks with unequal shares may rely on.
#include "weft/schedule/shares.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "weft/schedule/schedule.h"

namespace weft {
namespace {

using Counts = std::vector<int64_t>;

TEST(Shares, AreInProportionToSpeeds) {
  EXPECT_EQ(shares_by_weight({1, 1}, 8), (Counts{4, 4}));
  EXPECT_EQ(shares_by_weight({3, 1}, 8), (Counts{6, 2}));
  EXPECT_EQ(shares_by_weight({1, 1, 1}, 8), (Counts{3, 3, 2}));   // equal fractions: the first ones
  EXPECT_EQ(shares_by_weight({5, 3, 3}, 10), (Counts{4, 3, 3}));  // 4.55, 2.73, 2.73: the largest fractions
  EXPECT_EQ(shares_by_weight({0.25}, 3), (Counts{3}));
  EXPECT_EQ(text_of_shares({6, 2}), "[6, 2]");
}

TEST(Shares, AreNeverBelowOne) {
  EXPECT_EQ(shares_by_weight({100, 1, 1}, 4), (Counts{2, 1, 1}));
  EXPECT_EQ(shares_by_weight({1, 100, 1}, 3), (Counts{1, 1, 1}));
}

TEST(Shares, OfAnySpeedsAddUpAndAreNoOneFromTheExactOnesWhereThoseAreAboveOne) {
  std::mt19937 gen(3);
  for (int i = 0; i < 500; ++i) {
    std::vector<double> weights(1 + gen() % 7);
    for (double& w : weights) w = 1 + double(gen() % 100) / 40;
    const int64_t total = 4 * int64_t(weights.size()) + gen() % 50;  // exact shares are above 1
    const Counts shares = shares_by_weight(weights, total);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}), total);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t r = 0; r < shares.size(); ++r)
      EXPECT_LT(std::abs(double(shares[r]) - double(total) * weights[r] / all), 1) << i;
  }
}

// The chunks of a rank in the order in which their last gradients are done, which is when data-parallel ranks sum them.
std::vector<int> chunks_by_end(const Schedule& schedule, int64_t micro_batches) {
  std::vector<int> chunks;
  for (const Action& a : schedule)
    if (a.micro_batch == micro_batches - 1 && (a.what == Do::backward || a.what == Do::wgrad))
      chunks.push_back(a.chunk);
  return chunks;
}

TEST(Shares, ChangeNothingOfTheOrderInWhichRanksSumTheGradientsOfTheirChunks) {
  using enum ScheduleKind;
  for (const ScheduleKind kind : {gpipe, one_f_one_b, interleaved_1f1b, zb_h1, zbv})
    for (int stages = 1; stages <= 4; ++stages)
      for (int stage = 0; stage < stages; ++stage) {
        const Pipeline pipeline = make_pipeline(kind, stages);
        const std::vector<int> first = chunks_by_end(schedule_of(pipeline, stage, 1), 1);
        EXPECT_EQ(int(first.size()), pipeline.num_chunks);
        for (int64_t m = 2; m < 14; ++m)
          EXPECT_EQ(chunks_by_end(schedule_of(pipeline, stage, m), m), first)
              << int(kind) << " " << stages << " stages, stage " << stage << ", " << m << " micro-batches";
      }
}

}  // namespace
}  // namespace weft
