#include "weft/step/ppo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/tiny.h"

namespace weft {
namespace {

using testing::TinyRun;

// Three tokens of one completion; the bounds of ratios and of values both bind on some.
struct Rollout {
  std::vector<double> advantages{1.5, -0.5, 2}, returns{1, -2, 0.5}, old_logps{-2, -1, -3}, old_values{0.6, -0.1, 0.4};
  std::vector<double> logps{-1.5, -1.6, -3.1}, values{0.1, 0.05, 0.45};
};

constexpr Ppo::Spec kSpec{.clip_eps_low = 0.3, .clip_eps_high = 0.2, .value_clip = 0.2, .value_coef = 0.7};

// A sequence of five places, of which the second predicts the completion's first token.
class Case {
 public:
  Objective::Scores scores() {
    own_ = {0, -r_.logps[0], -r_.logps[1], -r_.logps[2], 0};
    values_ = {0, r_.values[0], r_.values[1], r_.values[2], 0};
    return {.own = own_, .frozen = {}, .values = values_, .sequences = {.seq_length = 5}};
  }
  std::vector<double> sums() {
    std::vector<double> sums(Ppo::kSums, 0.0);
    ppo.sum(scores(), kCounted, sums);
    return sums;
  }
  double loss() { return ppo.loss(0, sums()); }
  Rollout r_;
  const Ppo ppo{kSpec, [this](int64_t, int64_t) {
                  return Ppo::Sampled{r_.advantages, r_.returns, r_.old_logps, r_.old_values, 1};
                }};
  static inline const std::vector<double> kCounted{0, 1, 1, 1, 0};

 private:
  std::vector<double> own_, values_;
};

// By hand. Ratios e^0.5, e^-0.6, e^-0.1: the first is above 1.2 with A > 0, the second below 0.7 with A < 0. Values:
// the first left its bound 0.4 upwards away from R = 1; the second is within; the third too.
TEST(Ppo, LossAndTermsAreThoseOfTheFormulas) {
  Case c;
  const double policy = (-1.2 * 1.5 + 0.7 * 0.5 - std::exp(-0.1) * 2) / 3;
  const double value = (0.9 * 0.9 + 2.05 * 2.05 + 0.05 * 0.05) / 6;
  const Objective::Terms terms = c.ppo.terms(c.sums());
  const std::map<std::string, double> by_name(terms.begin(), terms.end());
  const std::map<std::string, double> expected{{"policy_loss", policy},
                                               {"value_loss", value},
                                               {"clip_fraction", 2.0 / 3},
                                               {"value_clip_fraction", 0},
                                               {"approx_kl", (-0.5 + 0.6 + 0.1) / 3},
                                               {"ratio_mean", (std::exp(0.5) + std::exp(-0.6) + std::exp(-0.1)) / 3}};
  ASSERT_EQ(by_name.size(), expected.size());
  for (const auto& [name, number] : expected) EXPECT_NEAR(by_name.at(name), number, 1e-14) << name;
  EXPECT_NEAR(c.loss(), policy + 0.7 * value, 1e-14);
}

// A value beyond its bound, on the side of its return, has the loss of the bound, and no slope.
TEST(Ppo, ValuesLearnNoFurtherThanTheirBound) {
  Case c;
  c.r_.values = {0.95, -0.9, 0.1};  // towards R, towards R, away from it
  const Objective::Terms terms = c.ppo.terms(c.sums());
  EXPECT_NEAR(terms[1].second, (0.2 * 0.2 + 1.7 * 1.7 + 0.4 * 0.4) / 6, 1e-14);
  EXPECT_NEAR(terms[3].second, 2.0 / 3, 1e-15);
  std::vector<double> weights = Case::kCounted, of_values = weights;
  c.ppo.weigh_both(c.scores(), c.sums(), weights, of_values);
  EXPECT_EQ(of_values[1], 0);
  EXPECT_EQ(of_values[2], 0);
  EXPECT_NEAR(of_values[3], 0.7 * 0.4, 1e-15);
}

TEST(Ppo, WeightsAreTheDerivativesOfTheLoss) {
  Case c;
  std::vector<double> weights = Case::kCounted, of_values = weights;
  const std::vector<double> sums = c.sums();
  c.ppo.weigh_both(c.scores(), sums, weights, of_values);
  for (size_t i = 0; i < 3; ++i) {
    const auto slope = [&](double& x) {
      const double kept = x;
      x = kept + 1e-6;
      const double more = c.loss();
      x = kept - 1e-6;
      const double less = c.loss();
      x = kept;
      return (more - less) / 2e-6;
    };
    EXPECT_NEAR(weights[i + 1] / c.ppo.divisor(3), -slope(c.r_.logps[i]), 1e-9);
    EXPECT_NEAR(of_values[i + 1] / c.ppo.divisor(3), -slope(c.r_.values[i]), 1e-9);
  }
  EXPECT_EQ(weights[0], 0);
  EXPECT_EQ(of_values[4], 0);
}

// A whole step, along the gradient of all weights together.
TEST(Ppo, GradientsAreTheDerivativeOfTheLossThatIsReported) {
  Rollout r;
  for (std::vector<double>* numbers : {&r.advantages, &r.returns, &r.old_logps, &r.old_values})
    for (size_t i = 3; i < size_t(testing::kSeq); ++i) numbers->push_back((*numbers)[i - 3] + 0.1);
  const Ppo ppo({.clip_eps_low = 0.9, .clip_eps_high = 30, .value_clip = 1, .value_coef = 0.7}, [&](int64_t, int64_t) {
    return Ppo::Sampled{r.advantages, r.returns, r.old_logps, r.old_values, 0};
  });
  ModelSpec model = testing::tiny_llama();
  model.predicts_values = true;
  for (const auto& [schedule, stream] : {std::pair("1f1b", Spmd::Invariant), std::pair("zb_h1", Spmd::Shard0)}) {
    TinyRun run(model, {.micro_batch_size = 2,
                        .schedule = schedule,
                        .stream = stream,
                        .scores_first = true,
                        .predicts_values = true,
                        .num_sums = Ppo::kSums});
    EXPECT_NEAR(testing::growth_along_gradient(run, ppo), 1, 1e-7) << schedule;
    EXPECT_EQ(run.used(), run.plan().persistent);
  }
}

}  // namespace
}  // namespace weft
