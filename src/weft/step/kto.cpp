#include "weft/step/kto.h"

#include <algorithm>
#include <cmath>

#include "weft/step/objective_parts.h"

namespace weft {
namespace {

enum KtoSum { kLogp, kRef, kOtherLogp, kOtherRef, kDesirable };

// 1 / (1 + e^-x), for any x.
double logistic(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

}  // namespace

void Kto::sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const {
  const int64_t rows = scores.sequences.rows();
  const int logp = scores.others ? kOtherLogp : kLogp, ref = scores.others ? kOtherRef : kRef;
  for (int64_t first = 0; first < int64_t(counted.size()); first += rows) {
    double* const of_sequence = &sums[size_t(first / rows * kSums)];
    const bool counts = !scores.others && is_desirable_(scores.batch, scores.first_sequence + first / rows);
    for (auto i = size_t(first); i < size_t(first + rows); ++i) {
      of_sequence[logp] -= scores.own[i];
      of_sequence[ref] -= scores.frozen[0][i];
      if (counts) of_sequence[kDesirable] += counted[i];
    }
  }
}

// A target has the loss -log p, so its weight is the derivative of the loss by the example's -logp.
void Kto::weigh(const Scores& scores, Sums sums, std::span<double> weights) const {
  const double z = reference_point(sums);
  weigh_sequences(scores, weights, [&](int64_t i) {
    const double s = logistic(spec_.beta * (moved(sums, i) - z)), slope = spec_.beta * s * (1 - s);
    return desirable(sums, i) ? spec_.desirable_weight * slope : -spec_.undesirable_weight * slope;
  });
}

double Kto::loss(double, Sums sums) const {
  const double z = reference_point(sums);
  return mean_over(spec_.num_examples, [&](int64_t i) {
    const double x = spec_.beta * (moved(sums, i) - z);
    return desirable(sums, i) ? spec_.desirable_weight * logistic(-x) : spec_.undesirable_weight * logistic(x);
  });
}

Objective::Terms Kto::terms(Sums sums) const {
  Totals totals;
  add(sums, totals);
  return terms_of(totals);
}

Objective::Terms Kto::terms_of_all(std::span<const std::vector<double>> batches) const {
  Totals totals;
  for (const std::vector<double>& sums : batches) add(sums, totals);
  return terms_of(totals);
}

void Kto::add(Sums sums, Totals& to) const {
  const double z = reference_point(sums);
  to.batches += 1;
  to.kl += z;
  to.kl_before_clamp += mean_of_others(sums);
  for (int64_t i = 0; i < spec_.num_examples; ++i) {
    const int kind = desirable(sums, i) ? 0 : 1;
    const double d = moved(sums, i);
    if (kind == 0 ? d > z : d < z) to.right += 1;
    to.count[kind] += 1;
    to.reward[kind] += spec_.beta * d;
    to.logp[kind] += sums[size_t(i * kSums + kLogp)];
  }
}

Objective::Terms Kto::terms_of(const Totals& all) {
  const auto& [batches, kl, kl_before_clamp, right, count, reward, logp] = all;
  return {{"kl", kl / batches},
          {"kl_before_clamp", kl_before_clamp / batches},
          {"reward_chosen", reward[0] / count[0]},
          {"reward_rejected", reward[1] / count[1]},
          {"margin", reward[0] / count[0] - reward[1] / count[1]},
          {"accuracy", right / (count[0] + count[1])},
          {"logp_chosen", logp[0] / count[0]},
          {"logp_rejected", logp[1] / count[1]}};
}

bool Kto::desirable(Sums sums, int64_t i) { return sums[size_t(i * kSums + kDesirable)] > 0; }

double Kto::moved(Sums sums, int64_t i) { return sums[size_t(i * kSums + kLogp)] - sums[size_t(i * kSums + kRef)]; }

double Kto::mean_of_others(Sums sums) const {
  return mean_over(spec_.num_examples, [&](int64_t i) {
    return sums[size_t(i * kSums + kOtherLogp)] - sums[size_t(i * kSums + kOtherRef)];
  });
}

double Kto::reference_point(Sums sums) const { return std::max(0.0, mean_of_others(sums)); }

}  // namespace weft
