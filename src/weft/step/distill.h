// Distillation: a student learns the distribution of a teacher, a larger frozen model of the same vocabulary, beside
// the targets.                                                                       Hinton et al. 2015; Gu et al. 2024
#pragma once
#include "weft/step/objective.h"

namespace weft {

// alpha T^2 KL + (1 - alpha) cross-entropy of the next token, each the mean over the targets that count.
class Distill final : public Objective {
 public:
  explicit Distill(const Distillation& loss) : loss_(loss) {}  // temperature above 0, alpha of 0 to 1

  std::optional<Distillation> distillation() const override { return loss_; }
  bool weighs() const override { return false; }
  void weigh(const Scores&, Sums, std::span<double>) const override {}
  double divisor(int64_t counted) const override { return kNextToken.divisor(counted); }
  // kl and ce: without their factors.
  Terms taught_terms(double divergence, double cross_entropy) const override {
    return {{"kl", divergence}, {"ce", cross_entropy}};
  }

 private:
  const Distillation loss_;
};

}  // namespace weft
