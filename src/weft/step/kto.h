// Kahneman-Tversky optimisation: answers that were judged one by one become likelier where they were desirable, and
// less likely where not, beside what the reference thinks of them and by how much the model has moved away from it at
// all.
//   d  logp - ref, of the sum of the log-probabilities of a completion's tokens
#pragma once
#include <cstdint>
#include <functional>

#include "weft/step/objective.h"

namespace weft {

// Mean over the examples of the global batch of desirable_weight (1 - sigmoid(beta (d - z))), or of undesirable_weight
// (1 - sigmoid(beta (z - d))). The reference point is z = max(0, mean of d over other sequences: each prompt with the
// completion of another example), without gradient.                              Ethayarajh et al. 2024, eq. 7 and 8
class Kto final : public Objective {
 public:
  struct Spec {
    double beta = 0.1;  // above 0
    double desirable_weight = 1, undesirable_weight = 1;
    int64_t num_examples = 0;  // of a global batch
  };
  // Whether the example is desirable, by batch, from 0, and sequence of it.
  using IsDesirable = std::function<bool(int64_t batch, int64_t sequence)>;

  // Each sequence has: logp and ref; logp and ref of the other completion; the completion's tokens if it is desirable.
  static constexpr int kSums = 5;
  Kto(const Spec& spec, IsDesirable is_desirable) : spec_(spec), is_desirable_(std::move(is_desirable)) {}

  bool scores_first() const override { return true; }
  bool scores_others() const override { return true; }
  size_t num_frozen() const override { return 1; }
  int num_sums() const override { return kSums; }
  void sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const override;
  void weigh(const Scores& scores, Sums sums, std::span<double> weights) const override;
  double divisor(int64_t) const override { return double(spec_.num_examples); }
  double loss(double weighted, Sums sums) const override;
  // kl, which is z, and kl_before_clamp; reward_* = beta d and logp_*, means over the desirable examples (chosen) or
  // the others (rejected), NaN where there are none; margin, the difference of the rewards; accuracy, the share of
  // examples that are on their side of the reference point: d above z of desirable ones, below it of the others.
  Terms terms(Sums sums) const override;
  // kl of each batch counts alike; the rest are means over all examples.
  Terms terms_of_all(std::span<const std::vector<double>> batches) const override;

 private:
  // Of some batches, of the desirable examples and the others.
  struct Totals {
    double batches = 0, kl = 0, kl_before_clamp = 0, right = 0;
    double count[2] = {}, reward[2] = {}, logp[2] = {};
  };
  void add(Sums sums, Totals& to) const;
  static Terms terms_of(const Totals& totals);
  static bool desirable(Sums sums, int64_t i);
  static double moved(Sums sums, int64_t i);  // d
  double mean_of_others(Sums sums) const;
  double reference_point(Sums sums) const;

  const Spec spec_;
  const IsDesirable is_desirable_;
};

}  // namespace weft
