#include "weft/step/reward.h"

#include <cmath>

namespace weft {
namespace {

// -log(1 / (1 + e^-x)), for any x.
double minus_log_logistic(double x) { return x < 0 ? std::log1p(std::exp(x)) - x : std::log1p(std::exp(-x)); }

}  // namespace

void Reward::sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const {
  const auto rows = size_t(scores.sequences.rows());
  for (size_t i = 0; i < counted.size(); ++i) sums[i / rows] -= scores.own[i];
}

// The target that counts has the loss -r, so its weight is the derivative of the pair's loss by that.
void Reward::weigh(const Scores& scores, Sums sums, std::span<double> weights) const {
  const auto rows = size_t(scores.sequences.rows());
  for (size_t first = 0; first < weights.size(); first += rows) {
    const int64_t sequence = scores.first_sequence + int64_t(first / rows);
    const double slope = std::exp(-minus_log_logistic(-margin(sums, sequence / 2)));
    for (double& w : weights.subspan(first, rows)) w *= sequence % 2 == 0 ? slope : -slope;
  }
}

double Reward::loss(double, Sums sums) const {
  double all = 0;
  for (int64_t i = 0; i < spec_.num_pairs; ++i) all += minus_log_logistic(margin(sums, i));
  return all / double(spec_.num_pairs);
}

Objective::Terms Reward::terms(Sums sums) const {
  const auto n = double(spec_.num_pairs);
  double reward[2] = {}, right = 0;
  for (int64_t i = 0; i < spec_.num_pairs; ++i) {
    for (const int64_t side : {0, 1}) reward[side] += sums[size_t(2 * i + side)] / n;
    right += margin(sums, i) > 0;
  }
  return {{"reward_chosen", reward[0]},
          {"reward_rejected", reward[1]},
          {"margin", reward[0] - reward[1]},
          {"accuracy", right / n}};
}

}  // namespace weft
