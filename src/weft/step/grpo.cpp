#include "weft/step/grpo.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"

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
  const int64_t rows = scores.sequences.rows();
  for (int64_t first = 0; first < int64_t(counted.size()); first += rows) {
    const Sampled s = sampled_(scores.batch, scores.first_sequence + first / rows);
    int64_t row = first;
    for (const Run& run : scores.sequences.runs()) {
      for (int64_t at = run.first; at < run.end(); ++at, ++row) {
        if (counted[size_t(row)] == 0) continue;
        const int64_t token_of = at - s.first_target;
        WEFT_CHECK(token_of >= 0 && token_of < int64_t(s.old_logps.size()), "target {} of a completion", token_of);
        f(size_t(row),
          token(-scores.own[size_t(row)], -scores.frozen[0][size_t(row)], s.old_logps[size_t(token_of)], s.advantage));
      }
    }
  }
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

Grpo::Token Grpo::token(double logp, double ref, double old_logp, double advantage) const {
  const double ratio = std::exp(logp - old_logp), d = ref - logp;
  const double within = std::clamp(ratio, 1 - spec_.clip_eps_low, 1 + spec_.clip_eps_high);
  const bool clipped =
      advantage < 0 ? ratio < 1 - spec_.clip_eps_low : advantage > 0 && ratio > 1 + spec_.clip_eps_high;
  return {.policy = -std::min(ratio * advantage, within * advantage),
          .kl = std::exp(d) - d - 1,
          .ratio = ratio,
          .clipped = clipped,
          .slope = (clipped ? 0 : -ratio * advantage) + spec_.kl_beta * (1 - std::exp(d))};
}

double Grpo::normalised(Sums sums, int sum) const {
  if (spec_.normalisation != Normalisation::sequence) return total(sums, sum) / divisor(int64_t(total(sums, kTokens)));
  double all = 0;
  for (size_t at = 0; at < sums.size(); at += kSums) all += sums[at + size_t(sum)] / sums[at + kTokens];
  return all / double(spec_.num_sequences);
}

}  // namespace weft
