#include "weft/step/ppo.h"

#include <algorithm>
#include <cmath>

#include "weft/step/objective_parts.h"

namespace weft {
namespace {

enum PpoSum { kPpoPolicy, kPpoValue, kPpoRatio, kPpoKl, kPpoClipped, kPpoValueClipped, kPpoTokens };

double mean_of(Objective::Sums sums, PpoSum sum) {
  double all = 0, tokens = 0;
  for (size_t at = 0; at < sums.size(); at += Ppo::kSums) all += sums[at + sum], tokens += sums[at + kPpoTokens];
  return all / tokens;
}

}  // namespace

template <class F>
void Ppo::for_each_token(const Scores& scores, std::span<const double> counted, const F& f) const {
  for_each_sampled_token(scores, counted, sampled_, [&](size_t row, const Sampled& sampled, size_t i) {
    f(row, token(-scores.own[row], scores.values[row], sampled, i));
  });
}

void Ppo::sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const {
  const auto rows = size_t(scores.sequences.rows());
  for_each_token(scores, counted, [&](size_t row, const Token& t) {
    double* const of_sequence = &sums[row / rows * kSums];
    of_sequence[kPpoPolicy] += t.policy;
    of_sequence[kPpoValue] += t.value;
    of_sequence[kPpoRatio] += t.ratio;
    of_sequence[kPpoKl] += t.kl;
    of_sequence[kPpoClipped] += t.clipped;
    of_sequence[kPpoValueClipped] += t.value_clipped;
    of_sequence[kPpoTokens] += 1;
  });
}

// The loss of a target is -logp, and that of its value -V.
void Ppo::weigh_both(const Scores& scores, Sums, std::span<double> weights, std::span<double> values) const {
  const std::vector<double> counted(weights.begin(), weights.end());
  for_each_token(scores, counted, [&](size_t row, const Token& t) {
    weights[row] = -t.by_logp;
    if (!values.empty()) values[row] = -t.by_value;
  });
}

double Ppo::loss(double, Sums sums) const {
  return mean_of(sums, kPpoPolicy) + spec_.value_coef * mean_of(sums, kPpoValue);
}

Objective::Terms Ppo::terms(Sums sums) const {
  return {{"policy_loss", mean_of(sums, kPpoPolicy)},    {"value_loss", mean_of(sums, kPpoValue)},
          {"clip_fraction", mean_of(sums, kPpoClipped)}, {"value_clip_fraction", mean_of(sums, kPpoValueClipped)},
          {"ratio_mean", mean_of(sums, kPpoRatio)},      {"approx_kl", mean_of(sums, kPpoKl)}};
}

// Where the clipped loss of a value is the larger one, V is beyond the bound: then its derivative is 0.
Ppo::Token Ppo::token(double logp, double value, const Sampled& sampled, size_t i) const {
  const double old_logp = sampled.old_logps[i], old_value = sampled.old_values[i], ret = sampled.returns[i];
  const ClippedPolicy policy =
      clipped_policy(logp - old_logp, sampled.advantages[i], spec_.clip_eps_low, spec_.clip_eps_high);
  const double moved = value - old_value;  // within the bound, the value itself: a sum would round
  const double near = std::abs(moved) > spec_.value_clip ? old_value + std::copysign(spec_.value_clip, moved) : value;
  const double off = value - ret, near_off = near - ret;
  const bool value_clipped = near_off * near_off > off * off;
  return {.policy = policy.loss,
          .value = std::max(off * off, near_off * near_off) / 2,
          .ratio = policy.ratio,
          .kl = old_logp - logp,
          .clipped = policy.clipped,
          .value_clipped = value_clipped,
          .by_logp = policy.slope,
          .by_value = value_clipped ? 0 : spec_.value_coef * off};
}

}  // namespace weft
