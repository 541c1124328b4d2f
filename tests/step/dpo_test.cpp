#include "weft/step/dpo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/tiny.h"

namespace weft {
namespace {

using testing::TinyRun;

constexpr int64_t kPairs = 2;
using Sums = std::vector<double>;  // of two pairs: logp, ref, tokens of each sequence

Sums some_sums() { return {-5, -6, 4, -9, -7, 5, -3, -2, 2, -8, -8.5, 3}; }

const std::vector<Dpo::Spec> kSpecs{
    {.loss = Dpo::Loss::sigmoid, .beta = 0.3, .num_pairs = kPairs},
    {.loss = Dpo::Loss::sigmoid, .beta = 0.7, .label_smoothing = 0.2, .num_pairs = kPairs},
    {.loss = Dpo::Loss::ipo, .beta = 0.5, .num_pairs = kPairs},
    {.loss = Dpo::Loss::ipo, .beta = 0.5, .average_logps = true, .num_pairs = kPairs},
    {.loss = Dpo::Loss::sigmoid, .beta = 2, .average_logps = true, .num_pairs = kPairs}};

TEST(Dpo, LossesAreThoseOfTheFormulas) {
  // By hand: the differences are (1 + 2) = 3 and (-1 - 0.5) = -1.5.
  const Sums sums = some_sums();
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_NEAR(Dpo(kSpecs[0]).loss(0, sums), -(std::log(sigmoid(0.9)) + std::log(sigmoid(-0.45))) / 2, 1e-15);
  EXPECT_NEAR(Dpo(kSpecs[1]).loss(0, sums),
              -(0.8 * (std::log(sigmoid(2.1)) + std::log(sigmoid(-1.05))) +
                0.2 * (std::log(sigmoid(-2.1)) + std::log(sigmoid(1.05)))) /
                  2,
              1e-15);
  EXPECT_NEAR(Dpo(kSpecs[2]).loss(0, sums), (2.0 * 2.0 + 2.5 * 2.5) / 2, 1e-15);
  const double d0 = 1.0 / 4 + 2.0 / 5, d1 = -1.0 / 2 - 0.5 / 3;
  EXPECT_NEAR(Dpo(kSpecs[3]).loss(0, sums), ((d0 - 1) * (d0 - 1) + (d1 - 1) * (d1 - 1)) / 2, 1e-15);
  EXPECT_NEAR(Dpo(kSpecs[4]).loss(0, sums), -(std::log(sigmoid(2 * d0)) + std::log(sigmoid(2 * d1))) / 2, 1e-15);
}

TEST(Dpo, LargeDifferencesDoNotOverflow) {
  for (const double far : {-1e4, 1e4}) {
    const Sums sums{far, 0, 4, 0, 0, 5, far, 0, 2, 0, 0, 3};
    for (const Dpo::Spec& spec : kSpecs) EXPECT_TRUE(std::isfinite(Dpo(spec).loss(0, sums)));
  }
}

TEST(Dpo, TermsAreMeansOverPairs) {
  const Objective::Terms terms = Dpo(kSpecs[3]).terms(some_sums());
  const std::map<std::string, double> by_name(terms.begin(), terms.end());
  const std::map<std::string, double> expected{{"reward_chosen", 0.5 * (1 - 1) / 2},
                                               {"reward_rejected", 0.5 * (-2 + 0.5) / 2},
                                               {"margin", 0.5 * 1.5 / 2},
                                               {"accuracy", 0.5},
                                               {"logp_chosen", -4},
                                               {"logp_rejected", -8.5}};
  ASSERT_EQ(by_name.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_NEAR(by_name.at(name), value, 1e-15) << name;
}

// The weight of a target is the derivative of the loss by its own: here by central differences.
TEST(Dpo, WeightsAreTheDerivativeOfTheLoss) {
  const SequenceCut whole{.seq_length = 3};
  for (const Dpo::Spec& spec : kSpecs) {
    const Dpo dpo(spec);
    const Sums sums = some_sums();
    for (const int64_t first : {0, 2}) {
      std::vector<double> weights{0, 1, 1, 1, 1, 0};
      dpo.weigh({.own = {}, .frozen = {}, .first_sequence = first, .sequences = whole}, sums, weights);
      for (int64_t side = 0; side < 2; ++side) {
        const auto at = size_t((first + side) * Dpo::kSums);
        Sums more = sums, less = sums;
        more[at] += 1e-5, less[at] -= 1e-5;
        const double by_logp = (dpo.loss(0, more) - dpo.loss(0, less)) / 2e-5;
        EXPECT_EQ(weights[size_t(side == 0 ? 0 : 5)], 0);
        for (const size_t i : {size_t(side * 3 + 1), size_t(side == 0 ? 2 : 4)})
          EXPECT_NEAR(weights[i] / dpo.divisor(0), -by_logp, 1e-9);
      }
    }
  }
}

// A whole step, beside a frozen model.
TEST(Dpo, GradientsAreTheDerivativeOfTheLossThatIsReported) {
  for (const Dpo::Spec& one : kSpecs) {
    Dpo::Spec spec = one;
    spec.num_pairs = 4;
    const Dpo dpo(spec);
    TinyRun run(
        testing::tiny_llama(),
        {.micro_batch_size = 2, .scores_first = true, .num_sums = Dpo::kSums, .frozen = {testing::tiny_llama()}});
    EXPECT_NEAR(testing::growth_along_gradient(run, dpo), 1, 1e-7);
  }
}

}  // namespace
}  // namespace weft
