// What several objectives are made of: walks over the sequences of a micro-batch, and functions of log-probabilities.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "weft/base/error.h"
#include "weft/step/objective.h"

namespace weft {

// log(1 / (1 + e^-x)) and its exponential, without overflow for any x.
inline double log_sigmoid(double x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }
inline double sigmoid(double x) { return std::exp(log_sigmoid(x)); }

// Multiplies the weights of all targets of a sequence by f(sequence), counted in the global batch.
template <class F>
void weigh_sequences(const Objective::Scores& scores, std::span<double> weights, const F& f) {
  const auto rows = size_t(scores.sequences.rows());
  for (size_t first = 0; first < weights.size(); first += rows) {
    const double factor = f(scores.first_sequence + int64_t(first / rows));
    for (double& w : weights.subspan(first, rows)) w *= factor;
  }
}

// The mean of f(i) over i in [0, n).
template <class F>
double mean_over(int64_t n, const F& f) {
  double all = 0;
  for (int64_t i = 0; i < n; ++i) all += f(i);
  return all / double(n);
}

// Calls f(row, sampled, i) for every target of the micro-batch that counts: its row there, what `sampled_of(batch,
// sequence)` knows of its completion, and the target's place in that, from 0. `Sampled` has old_logps, a number for
// each token of the completion, and first_target, the place in the sequence that predicts the first of them.
template <class SampledOf, class F>
void for_each_sampled_token(const Objective::Scores& scores, std::span<const double> counted,
                            const SampledOf& sampled_of, const F& f) {
  const int64_t rows = scores.sequences.rows();
  for (int64_t first = 0; first < int64_t(counted.size()); first += rows) {
    const auto sampled = sampled_of(scores.batch, scores.first_sequence + first / rows);
    auto row = size_t(first);
    for (const Run& run : scores.sequences.runs()) {
      for (int64_t at = run.first; at < run.end(); ++at, ++row) {
        if (counted[row] == 0) continue;
        const int64_t i = at - sampled.first_target;
        WEFT_CHECK(i >= 0 && i < int64_t(sampled.old_logps.size()), "target {} of a completion", i);
        f(row, sampled, size_t(i));
      }
    }
  }
}

// -min(ratio A, clip(ratio, 1 - low, 1 + high) A), ratio = exp(logp - old logp), A the advantage of a token.
//                                                                              Schulman et al. 2017, eq. 7
struct ClippedPolicy {
  double ratio, loss;
  bool clipped;  // is the loss that of a bound
  double slope;  // derivative of the loss by logp
};
inline ClippedPolicy clipped_policy(double log_ratio, double advantage, double low, double high) {
  const double a = advantage, ratio = std::exp(log_ratio), within = std::clamp(ratio, 1 - low, 1 + high);
  const bool clipped = a < 0 ? ratio < 1 - low : a > 0 && ratio > 1 + high;
  return {
      .ratio = ratio, .loss = -std::min(ratio * a, within * a), .clipped = clipped, .slope = clipped ? 0 : -ratio * a};
}

}  // namespace weft
