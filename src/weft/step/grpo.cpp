#include "weft/step/grpo.h"

#include <cmath>

#include "weft/step/objective_parts.h"

namespace weft {
namespace {

enum Sum { kPolicy, kKl, kRatio, kClipped, kTokens };

double total(Objective::Sums sums, int sum) {
  double all = 0;
  for (auto at = size_t(sum); at < sums.size(); at += Grpo::kSums) all += sums[at];
  return all;
}

}  // namespace

template <class F>
void Grpo::for_each_token(const Scores& scores, std::span<const double> counted, const F& f) const {
  for_each_sampled_token(scores, counted, sampled_, [&](size_t row, const Sampled& sampled, size_t i) {
    f(row, token(-scores.own[row], -scores.frozen[0][row], sampled, i));
  });
}

void Grpo::sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const {
  const auto rows = size_t(scores.sequences.rows());
  for_each_token(scores, counted, [&](size_t row, const Token& t) {
    double* const of_sequence = &sums[row / rows * kSums];
    of_sequence[kPolicy] += t.policy;
    of_sequence[kKl] += t.kl;
    of_sequence[kRatio] += t.ratio;
    of_sequence[kClipped] += t.clipped;
    of_sequence[kTokens] += 1;
  });
}

void Grpo::weigh(const Scores& scores, Sums sums, std::span<double> weights) const {
  const auto rows = size_t(scores.sequences.rows());
  const std::vector<double> counted(weights.begin(), weights.end());
  for_each_token(scores, counted, [&](size_t row, const Token& t) {
    const size_t sequence = size_t(scores.first_sequence) + row / rows;
    const double share = spec_.normalisation == Normalisation::sequence ? 1 / sums[sequence * kSums + kTokens] : 1;
    weights[row] = -t.slope * share;
  });
}

double Grpo::divisor(int64_t counted) const {
  if (spec_.normalisation == Normalisation::token) return double(counted);
  const double of_each = spec_.normalisation == Normalisation::constant ? double(spec_.max_completion_length) : 1;
  return double(spec_.num_sequences) * of_each;
}

double Grpo::loss(double, Sums sums) const { return normalised(sums, kPolicy) + spec_.kl_beta * normalised(sums, kKl); }

Objective::Terms Grpo::terms(Sums sums) const {
  const double tokens = total(sums, kTokens);
  return {{"policy_loss", normalised(sums, kPolicy)},
          {"kl", total(sums, kKl) / tokens},
          {"clip_fraction", total(sums, kClipped) / tokens},
          {"ratio_mean", total(sums, kRatio) / tokens}};
}

Grpo::Token Grpo::token(double logp, double ref, const Sampled& sampled, size_t i) const {
  const ClippedPolicy policy =
      clipped_policy(logp - sampled.old_logps[i], sampled.advantage, spec_.clip_eps_low, spec_.clip_eps_high);
  const double d = ref - logp;
  return {.policy = policy.loss,
          .kl = std::exp(d) - d - 1,
          .ratio = policy.ratio,
          .clipped = policy.clipped,
          .slope = policy.slope + spec_.kl_beta * (1 - std::exp(d))};
}

double Grpo::normalised(Sums sums, int sum) const {
  if (spec_.normalisation != Normalisation::sequence) return total(sums, sum) / divisor(int64_t(total(sums, kTokens)));
  double all = 0;
  for (size_t at = 0; at < sums.size(); at += kSums) all += sums[at + size_t(sum)] / sums[at + kTokens];
  return all / double(spec_.num_sequences);
}

}  // namespace weft
