#include "weft/step/reward.h"

#include "weft/step/objective_parts.h"

namespace weft {

void Reward::sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const {
  const auto rows = size_t(scores.sequences.rows());
  for (size_t i = 0; i < counted.size(); ++i) sums[i / rows] -= scores.own[i];
}

// The target that counts has the loss -r, so its weight is the derivative of the pair's loss by that.
void Reward::weigh(const Scores& scores, Sums sums, std::span<double> weights) const {
  weigh_sequences(scores, weights, [&](int64_t sequence) {
    return sigmoid(-margin(sums, sequence / 2)) * (sequence % 2 == 0 ? 1 : -1);
  });
}

double Reward::loss(double, Sums sums) const {
  return mean_over(spec_.num_pairs, [&](int64_t i) { return -log_sigmoid(margin(sums, i)); });
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
