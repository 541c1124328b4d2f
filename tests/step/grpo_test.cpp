#include "weft/step/grpo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace weft {
namespace {

using Normalisation = Grpo::Normalisation;

constexpr int64_t kTokens = 4, kRollouts = 2;  // of a sequence; of a batch

// Two sequences of 4 targets: of the first the last three count, of the second the middle two.
const std::vector<double> kCounted{0, 1, 1, 1, 0, 1, 1, 0};
const std::vector<double> kOldLogps[] = {{-1.2, -2.0, -0.7}, {-3.1, -1.5}};
constexpr double kAdvantages[] = {0.8, -1.3};
constexpr int64_t kBatch = 3;

Grpo::Sampled sampled(int64_t batch, int64_t sequence) {
  EXPECT_EQ(batch, kBatch);
  return {.advantage = kAdvantages[sequence], .old_logps = kOldLogps[sequence], .first_target = 1};
}

Grpo grpo_of(Normalisation normalisation, double kl_beta) {
  return Grpo({.clip_eps_low = 0.2,
               .clip_eps_high = 0.28,
               .kl_beta = kl_beta,
               .normalisation = normalisation,
               .max_completion_length = 16,
               .num_sequences = kRollouts},
              sampled);
}

// -log-probabilities, 0 where a target does not count. Ratios of the first: 0.67 (below a bound, but its advantage
// wants it higher), 1.35 (clipped), 1; of the second: 0.61 (clipped), 1.2.
std::vector<double> own_losses() { return {0, 1.6, 1.7, 0.7, 0, 3.6, 1.32, 0}; }
std::vector<double> reference_losses() { return {0, 1.25, 1.9, 0.72, 0, 3.2, 1.5, 0}; }

std::vector<double> sums_of(const Grpo& grpo, const std::vector<double>& own) {
  const std::vector<double> reference = reference_losses();
  std::vector<double> sums(size_t(kRollouts * Grpo::kSums), 0.0);
  grpo.sum({.own = own, .frozen = {reference}, .batch = kBatch, .sequences = {.seq_length = kTokens}}, kCounted, sums);
  return sums;
}

double k3(double d) { return std::exp(d) - d - 1; }

TEST(Grpo, LossesAndTermsAreThoseOfTheFormulas) {
  const double ratio[] = {std::exp(-0.4), std::exp(0.3), 1, std::exp(-0.5), std::exp(0.18)};
  const double policy[] = {-0.8 * ratio[0], -0.8 * 1.28, -0.8 * ratio[2], 1.3 * 0.8, 1.3 * ratio[4]};
  const double kl[] = {k3(0.35), k3(-0.2), k3(-0.02), k3(0.4), k3(-0.18)};
  const double first = policy[0] + policy[1] + policy[2], second = policy[3] + policy[4];
  const double kl_first = kl[0] + kl[1] + kl[2], kl_second = kl[3] + kl[4];
  struct Expected {
    Normalisation normalisation;
    double policy, kl;
  };
  for (const Expected& e :
       {Expected{Normalisation::token, (first + second) / 5, (kl_first + kl_second) / 5},
        Expected{Normalisation::sequence, (first / 3 + second / 2) / 2, (kl_first / 3 + kl_second / 2) / 2},
        Expected{Normalisation::constant, (first + second) / 32, (kl_first + kl_second) / 32}}) {
    const Grpo grpo = grpo_of(e.normalisation, 0.04);
    const std::vector<double> sums = sums_of(grpo, own_losses());
    EXPECT_NEAR(grpo.loss(0, sums), e.policy + 0.04 * e.kl, 1e-14);
    const Objective::Terms terms = grpo.terms(sums);
    const std::map<std::string, double> by_name(terms.begin(), terms.end());
    EXPECT_NEAR(by_name.at("policy_loss"), e.policy, 1e-14);
    EXPECT_NEAR(by_name.at("kl"), (kl_first + kl_second) / 5, 1e-14);
    EXPECT_NEAR(by_name.at("ratio_mean"), (ratio[0] + ratio[1] + ratio[2] + ratio[3] + ratio[4]) / 5, 1e-14);
    EXPECT_NEAR(by_name.at("clip_fraction"), 2.0 / 5, 1e-14);
  }
}

// The weight of a target is the derivative of the loss by its own, here by central differences; 0 where it is clipped.
TEST(Grpo, WeightsAreTheDerivativeOfTheLoss) {
  for (const Normalisation normalisation : {Normalisation::token, Normalisation::sequence, Normalisation::constant}) {
    for (const double kl_beta : {0.0, 0.3}) {
      const Grpo grpo = grpo_of(normalisation, kl_beta);
      const std::vector<double> own = own_losses(), reference = reference_losses(), sums = sums_of(grpo, own);
      std::vector<double> weights = kCounted;
      grpo.weigh({.own = own, .frozen = {reference}, .batch = kBatch, .sequences = {.seq_length = kTokens}}, sums,
                 weights);
      for (size_t i = 0; i < own.size(); ++i) {
        if (kCounted[i] == 0) {
          EXPECT_EQ(weights[i], 0);
          continue;
        }
        std::vector<double> more = own, less = own;
        more[i] += 1e-6, less[i] -= 1e-6;
        const double slope = (grpo.loss(0, sums_of(grpo, more)) - grpo.loss(0, sums_of(grpo, less))) / 2e-6;
        EXPECT_NEAR(weights[i] / grpo.divisor(5), slope, 1e-9) << "target " << i;
        if (kl_beta == 0 && (i == 2 || i == 5)) { EXPECT_EQ(weights[i], 0) << "clipped"; }
      }
    }
  }
}

// Ranks of cp have other targets of a sequence: their sums together are those of one rank.
TEST(Grpo, SumsOfRanksThatShareSequencesAreThoseOfOne) {
  const Grpo grpo = grpo_of(Normalisation::token, 0.1);
  const std::vector<double> own = own_losses(), reference = reference_losses(), whole = sums_of(grpo, own);
  std::vector<double> together(whole.size(), 0.0);
  for (int rank = 0; rank < 2; ++rank) {
    const SequenceCut cut{.seq_length = kTokens, .ranks = {2, rank}};
    const auto here = [&](const std::vector<double>& all) {
      std::vector<double> rows;
      for (int64_t sequence = 0; sequence < kRollouts; ++sequence)
        for (const weft::Run& run : cut.runs())
          for (int64_t i = run.first; i < run.end(); ++i) rows.push_back(all[size_t(sequence * kTokens + i)]);
      return rows;
    };
    const std::vector<double> mine = here(own), ref = here(reference), counted = here(kCounted);
    std::vector<double> sums(whole.size(), 0.0);
    grpo.sum({.own = mine, .frozen = {ref}, .batch = kBatch, .sequences = cut}, counted, sums);
    for (size_t i = 0; i < sums.size(); ++i) together[i] += sums[i];
  }
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(together[i], whole[i], 1e-14);
}

}  // namespace
}  // namespace weft
