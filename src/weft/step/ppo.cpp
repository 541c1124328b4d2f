#include "weft/step/ppo.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"

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
  const int64_t rows = scores.sequences.rows();
  for (int64_t first = 0; first < int64_t(counted.size()); first += rows) {
    const Sampled s = sampled_(scores.batch, scores.first_sequence + first / rows);
    auto row = size_t(first);
    for (const Run& run : scores.sequences.runs()) {
      for (int64_t at = run.first; at < run.end(); ++at, ++row) {
        if (counted[row] == 0) continue;
        const auto i = size_t(at - s.first_target);
        WEFT_CHECK(i < s.old_logps.size(), "target {} of a completion", int64_t(i));
        f(row, token(-scores.own[row], scores.values[row],
                     {s.advantages[i], s.returns[i], s.old_logps[i], s.old_values[i]}));
      }
    }
  }
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
void Ppo::weigh(const Scores& scores, Sums, std::span<double> weights) const {
  const std::vector<double> counted(weights.begin(), weights.end());
  for_each_token(scores, counted, [&](size_t row, const Token& t) { weights[row] = -t.by_logp; });
}

void Ppo::weigh_values(const Scores& scores, std::span<double> weights) const {
  const std::vector<double> counted(weights.begin(), weights.end());
  for_each_token(scores, counted, [&](size_t row, const Token& t) { weights[row] = -t.by_value; });
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
Ppo::Token Ppo::token(double logp, double value, const Given& given) const {
  const double a = given.advantage, ratio = std::exp(logp - given.old_logp);
  const double within = std::clamp(ratio, 1 - spec_.clip_eps_low, 1 + spec_.clip_eps_high);
  const bool clipped = a < 0 ? ratio < 1 - spec_.clip_eps_low : a > 0 && ratio > 1 + spec_.clip_eps_high;
  const double moved = value - given.old_value;  // within the bound, the value itself: a sum would round
  const double near =
      std::abs(moved) > spec_.value_clip ? given.old_value + std::copysign(spec_.value_clip, moved) : value;
  const double off = value - given.ret, near_off = near - given.ret;
  const bool value_clipped = near_off * near_off > off * off;
  return {.policy = -std::min(ratio * a, within * a),
          .value = std::max(off * off, near_off * near_off) / 2,
          .ratio = ratio,
          .kl = given.old_logp - logp,
          .clipped = clipped,
          .value_clipped = value_clipped,
          .by_logp = clipped ? 0 : -ratio * a,
          .by_value = value_clipped ? 0 : spec_.value_coef * off};
}

}  // namespace weft
