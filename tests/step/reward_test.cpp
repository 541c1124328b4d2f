#include "weft/step/reward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/tiny.h"

namespace weft {
namespace {

using testing::TinyRun;

double minus_log_sigmoid(double x) { return std::log(1 + std::exp(-x)); }

TEST(Reward, LossAndTermsAreThoseOfTheFormulas) {
  const std::vector<double> sums{2, 0.5, -1, 1.25};  // margins 1.5 and -2.25
  const Reward reward({.num_pairs = 2});
  EXPECT_NEAR(reward.loss(0, sums), (minus_log_sigmoid(1.5) + minus_log_sigmoid(-2.25)) / 2, 1e-15);
  const Objective::Terms terms = reward.terms(sums);
  const std::map<std::string, double> by_name(terms.begin(), terms.end());
  const std::map<std::string, double> expected{
      {"reward_chosen", 0.5}, {"reward_rejected", 0.875}, {"margin", -0.375}, {"accuracy", 0.5}};
  ASSERT_EQ(by_name.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_NEAR(by_name.at(name), value, 1e-15) << name;
  for (const double far : {-1e4, 1e4})
    EXPECT_TRUE(std::isfinite(Reward({.num_pairs = 1}).loss(0, std::vector{far, 0.0})));
}

TEST(Reward, WeightsAreTheDerivativeOfTheLossByMinusTheScore) {
  const std::vector<double> sums{2, 0.5, -1, 1.25};
  const Reward reward({.num_pairs = 2});
  for (const int64_t first : {0, 2}) {
    std::vector<double> weights{0, 1, 0, 0, 0, 1};
    reward.weigh({.own = {}, .frozen = {}, .first_sequence = first, .sequences = {.seq_length = 3}}, sums, weights);
    for (int64_t side = 0; side < 2; ++side) {
      std::vector<double> more = sums, less = sums;
      more[size_t(first + side)] += 1e-5, less[size_t(first + side)] -= 1e-5;
      const double by_score = (reward.loss(0, more) - reward.loss(0, less)) / 2e-5;
      EXPECT_NEAR(weights[side == 0 ? 1 : 5] / reward.divisor(0), -by_score, 1e-9);
    }
    EXPECT_EQ(weights[0], 0);
  }
}

ModelSpec scoring(ModelSpec m) {
  m.head = HeadKind::score;
  m.tied_head = false;
  return m;
}

// A whole step, along the gradient of all weights together; with recomputation, and with wgrads that wait.
TEST(Reward, GradientsAreTheDerivativeOfTheLossThatIsReported) {
  const Reward reward({.num_pairs = 4});
  for (const auto& [schedule, stream, recompute] :
       {std::tuple("1f1b", Spmd::Invariant, false), std::tuple("zb_h1", Spmd::Shard0, true)}) {
    TinyRun run(scoring(recompute ? testing::tiny_gpt2() : testing::tiny_llama()), {.recompute_blocks = recompute,
                                                                                    .micro_batch_size = 2,
                                                                                    .schedule = schedule,
                                                                                    .stream = stream,
                                                                                    .scores_first = true,
                                                                                    .num_sums = Reward::kSums});
    EXPECT_NEAR(testing::growth_along_gradient(run, reward), 1, 1e-7) << schedule;
    EXPECT_EQ(run.used(), run.plan().persistent);
  }
}

}  // namespace
}  // namespace weft
