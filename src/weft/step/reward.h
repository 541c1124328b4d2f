// Training a reward model on pairs: of two completions of a prompt, the chosen one is to score higher.
//   r  score of a sequence, the model's at its last token (models with HeadKind::score)
#pragma once
#include <cstdint>

#include "weft/step/objective.h"

namespace weft {

// -log sigmoid(r of the chosen - r of the rejected), mean over the pairs of the global batch; the sequences of a pair
// follow each other, the chosen one first.                     Bradley & Terry 1952; Ouyang et al. 2022, eq. 1
class Reward final : public Objective {
 public:
  struct Spec {
    int64_t num_pairs = 0;  // of a global batch
  };
  static constexpr int kSums = 1;  // of each sequence: r. One target of it counts, whose loss is -r.
  explicit Reward(const Spec& spec) : spec_(spec) {}

  bool scores_first() const override { return true; }
  int num_sums() const override { return kSums; }
  void sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const override;
  void weigh(const Scores& scores, Sums sums, std::span<double> weights) const override;
  double divisor(int64_t) const override { return double(spec_.num_pairs); }
  double loss(double weighted, Sums sums) const override;
  // reward_*, means over pairs of r; margin, their difference; accuracy, the share of pairs with the chosen one's above
  // the other.
  Terms terms(Sums sums) const override;

 private:
  static double margin(Sums sums, int64_t pair) { return sums[size_t(2 * pair)] - sums[size_t(2 * pair + 1)]; }

  const Spec spec_;
};

}  // namespace weft
