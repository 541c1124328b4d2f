#include "weft/step/kto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace weft {
namespace {

constexpr int64_t kExamples = 3;

Kto kto_of(double beta = 0.4) {
  return Kto({.beta = beta, .desirable_weight = 1.25, .undesirable_weight = 1.5, .num_examples = kExamples},
             [](int64_t, int64_t sequence) { return sequence != 1; });
}

// d is 1, -0.5 and -2; the second is undesirable; the others have moved by 0.9, -0.6 and 0.3.
std::vector<double> kto_sums() { return {-5, -6, -7, -7.9, 3, -9, -8.5, -4, -3.4, 0, -7, -5, -2.2, -2.5, 4}; }

double logistic_of(double x) { return 1 / (1 + std::exp(-x)); }

TEST(Kto, LossAndTermsAreThoseOfTheFormulas) {
  const std::vector<double> sums = kto_sums();
  const Kto kto = kto_of();
  const double z = 0.2;
  EXPECT_NEAR(kto.loss(0, sums),
              (1.25 * (1 - logistic_of(0.4 * (1 - z))) + 1.5 * (1 - logistic_of(0.4 * (z + 0.5))) +
               1.25 * (1 - logistic_of(0.4 * (-2 - z)))) /
                  3,
              1e-14);
  const Objective::Terms terms = kto.terms(sums);
  const std::map<std::string, double> by_name(terms.begin(), terms.end());
  const std::map<std::string, double> expected{{"kl", z},
                                               {"kl_before_clamp", z},
                                               {"reward_chosen", 0.4 * (1 - 2) / 2},
                                               {"reward_rejected", 0.4 * -0.5},
                                               {"margin", -0.2 + 0.2},
                                               {"accuracy", 2.0 / 3},
                                               {"logp_chosen", -6},
                                               {"logp_rejected", -9}};
  ASSERT_EQ(by_name.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_NEAR(by_name.at(name), value, 1e-14) << name;
}

// Each example counts once, also where a batch has none of its kind; z is each batch's own.
TEST(Kto, TermsOfSeveralBatchesAreMeansOverAllExamples) {
  const Kto kto({.beta = 0.4, .num_examples = 2}, [](int64_t, int64_t) { return true; });
  // d is 1 and 3, both desirable, others moved by 1 and 2; then -2, undesirable, and 0.5, desirable; others by -1, -2.
  const std::vector<std::vector<double>> batches{{-5, -6, -7, -8, 3, -9, -12, -4, -6, 2},
                                                 {-7, -5, -3, -2, 0, -4, -4.5, -5, -3, 1}};
  const Objective::Terms terms = kto.terms_of_all(batches);
  const std::map<std::string, double> by_name(terms.begin(), terms.end());
  EXPECT_NEAR(by_name.at("kl"), (1.5 + 0) / 2, 1e-14);
  EXPECT_NEAR(by_name.at("kl_before_clamp"), (1.5 - 1.5) / 2, 1e-14);
  EXPECT_NEAR(by_name.at("reward_chosen"), 0.4 * (1 + 3 + 0.5) / 3, 1e-14);
  EXPECT_NEAR(by_name.at("reward_rejected"), 0.4 * -2, 1e-14);
  EXPECT_NEAR(by_name.at("margin"), 0.4 * (1.5 + 2), 1e-14);
  EXPECT_NEAR(by_name.at("accuracy"), 3.0 / 4, 1e-14);
  EXPECT_NEAR(by_name.at("logp_chosen"), (-5 - 9 - 4) / 3.0, 1e-14);
  EXPECT_NEAR(by_name.at("logp_rejected"), -7, 1e-14);
}

TEST(Kto, TheReferencePointIsNeverBelowZero) {
  std::vector<double> sums = kto_sums();
  for (size_t i = 2; i < sums.size(); i += Kto::kSums) sums[i] -= 1;
  const Objective::Terms terms = kto_of().terms(sums);
  const std::map<std::string, double> by_name(terms.begin(), terms.end());
  EXPECT_EQ(by_name.at("kl"), 0);
  EXPECT_NEAR(by_name.at("kl_before_clamp"), -0.8, 1e-14);
}

// The weight of a target is the derivative of the loss by its own, here by central differences.
TEST(Kto, WeightsAreTheDerivativeOfTheLoss) {
  const Kto kto = kto_of();
  const std::vector<double> sums = kto_sums();
  std::vector<double> weights{0, 1, 1, 1, 1, 0};
  kto.weigh({.own = {}, .frozen = {}, .first_sequence = 0, .sequences = {.seq_length = 2}}, sums, weights);
  for (int64_t i = 0; i < kExamples; ++i) {
    std::vector<double> more = sums, less = sums;
    more[size_t(i * Kto::kSums)] += 1e-5, less[size_t(i * Kto::kSums)] -= 1e-5;
    const double by_logp = (kto.loss(0, more) - kto.loss(0, less)) / 2e-5;
    const size_t counted = size_t(2 * i + (i == 2 ? 0 : 1));
    EXPECT_NEAR(weights[counted] / kto.divisor(0), -by_logp, 1e-9) << i;
    if (i != 1) { EXPECT_EQ(weights[size_t(i == 0 ? 0 : 5)], 0); }
  }
}

TEST(Kto, SumsKeepTheOtherSequencesApart) {
  const Kto kto = kto_of();
  const std::vector<double> own{1, 2, 3, 4}, reference{5, 6, 7, 8}, counted{1, 1, 0, 1};
  std::vector<double> sums(size_t(2 * Kto::kSums), 0.0);
  Objective::Scores scores{.own = own, .frozen = {reference}, .first_sequence = 0, .sequences = {.seq_length = 2}};
  kto.sum(scores, counted, sums);
  scores.others = true;
  kto.sum(scores, counted, sums);
  EXPECT_EQ(sums, (std::vector<double>{-3, -11, -3, -11, 2, -7, -15, -7, -15, 0}));
}

}  // namespace
}  // namespace weft
