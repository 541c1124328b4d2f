// Direct preference optimisation: of two completions of a prompt, the chosen one becomes likelier than the rejected
// one, each beside what a reference thinks of it.
//   logp  sum of the log-probabilities of a completion's tokens   D = (logp - ref) of the chosen - that of the rejected
#pragma once
#include <cstdint>

#include "weft/step/objective.h"

namespace weft {

// sigmoid: -(1 - s) log sigmoid(beta D) - s log sigmoid(-beta D), s = label_smoothing.   Rafailov et al. 2023, eq. 7;
//                                                                                        Mitchell 2023, conservative
//                                                                                        DPO
// ipo: (D - 1 / (2 beta))^2.                                                             Azar et al. 2023, eq. 17
// Mean over the pairs of the global batch; the sequences of a pair follow each other, the chosen one first.
class Dpo final : public Objective {
 public:
  enum class Loss : uint8_t { sigmoid, ipo };
  struct Spec {
    Loss loss = Loss::sigmoid;
    double beta = 0.1;           // above 0
    double label_smoothing = 0;  // sigmoid: how likely a pair is the wrong way round; below 1/2
    bool average_logps = false;  // each logp - ref in D is divided by the tokens of its completion
    int64_t num_pairs = 0;       // of a global batch
  };
  static constexpr int kSums = 3;  // of each sequence: logp, ref, tokens of the completion
  explicit Dpo(const Spec& spec) : spec_(spec) {}

  bool scores_first() const override { return true; }
  size_t num_frozen() const override { return 1; }
  int num_sums() const override { return kSums; }
  void sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const override;
  void weigh(const Scores& scores, Sums sums, std::span<double> weights) const override;
  double divisor(int64_t) const override { return double(spec_.num_pairs); }
  double loss(double weighted, Sums sums) const override;
  // reward_* = beta (logp - ref) and logp_*, means over pairs; margin, the difference of the rewards; accuracy, the
  // share of pairs with a margin above 0.
  Terms terms(Sums sums) const override;

 private:
  struct Pair {
    double logp[2], ref[2], scale[2];  // of the chosen, the rejected; what logp - ref is multiplied with in D
    double difference() const { return scale[0] * (logp[0] - ref[0]) - scale[1] * (logp[1] - ref[1]); }
  };
  Pair pair(Sums sums, int64_t i) const;
  double loss_of(double difference) const;
  double slope_of(double difference) const;  // its derivative

  const Spec spec_;
};

}  // namespace weft
