#include "weft/step/dpo.h"

#include "weft/step/objective_parts.h"

namespace weft {

void Dpo::sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const {
  const auto rows = size_t(scores.sequences.rows());
  for (size_t i = 0; i < counted.size(); ++i) {
    double* const of_sequence = &sums[i / rows * kSums];
    of_sequence[0] -= scores.own[i];
    of_sequence[1] -= scores.frozen[0][i];
    of_sequence[2] += counted[i];
  }
}

// A target of the chosen has the loss -log p, so its weight is the derivative of the loss by the pair's -logp.
void Dpo::weigh(const Scores& scores, Sums sums, std::span<double> weights) const {
  weigh_sequences(scores, weights, [&](int64_t sequence) {
    const Pair p = pair(sums, sequence / 2);
    const int64_t side = sequence % 2;
    return slope_of(p.difference()) * p.scale[side] * (side == 0 ? -1 : 1);
  });
}

double Dpo::loss(double, Sums sums) const {
  return mean_over(spec_.num_pairs, [&](int64_t i) { return loss_of(pair(sums, i).difference()); });
}

Objective::Terms Dpo::terms(Sums sums) const {
  double logp[2] = {}, reward[2] = {}, right = 0;
  for (int64_t i = 0; i < spec_.num_pairs; ++i) {
    const Pair p = pair(sums, i);
    for (const int side : {0, 1}) {
      logp[side] += p.logp[side] / double(spec_.num_pairs);
      reward[side] += spec_.beta * (p.logp[side] - p.ref[side]) / double(spec_.num_pairs);
    }
    right += p.logp[0] - p.ref[0] > p.logp[1] - p.ref[1];
  }
  return {{"reward_chosen", reward[0]},      {"reward_rejected", reward[1]},
          {"margin", reward[0] - reward[1]}, {"accuracy", right / double(spec_.num_pairs)},
          {"logp_chosen", logp[0]},          {"logp_rejected", logp[1]}};
}

Dpo::Pair Dpo::pair(Sums sums, int64_t i) const {
  Pair p;
  for (const int side : {0, 1}) {
    const double* const of_sequence = &sums[size_t((2 * i + side) * kSums)];
    p.logp[side] = of_sequence[0];
    p.ref[side] = of_sequence[1];
    p.scale[side] = spec_.average_logps ? 1 / of_sequence[2] : 1;
  }
  return p;
}

double Dpo::loss_of(double difference) const {
  const double x = spec_.beta * difference, s = spec_.label_smoothing;
  if (spec_.loss == Loss::sigmoid) return -(1 - s) * log_sigmoid(x) - s * log_sigmoid(-x);
  const double apart = difference - 1 / (2 * spec_.beta);
  return apart * apart;
}

double Dpo::slope_of(double difference) const {
  const double x = spec_.beta * difference, s = spec_.label_smoothing;
  if (spec_.loss == Loss::sigmoid) return spec_.beta * (s * sigmoid(x) - (1 - s) * sigmoid(-x));
  return 2 * (difference - 1 / (2 * spec_.beta));
}

}  // namespace weft
