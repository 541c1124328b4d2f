// Group relative policy optimisation: of several completions of a prompt, those with more reward than their group's
// mean become likelier, as far as the policy has not moved too far from the one that sampled them.
//   logp  log-probability of a completion's token   ratio = exp(logp - old logp)   A  advantage of the completion
#pragma once
#include <cstdint>
#include <functional>

#include "weft/step/objective.h"

namespace weft {

// A token's loss: -min(ratio A, clip(ratio, 1 - low, 1 + high) A) + kl_beta (exp(d) - d - 1), d = ref - logp.
//                                                 Shao et al. 2024, eq. 3 and 4; two bounds: Yu et al. 2025, eq. 10
class Grpo final : public Objective {
 public:
  // How the tokens' losses become one.
  enum class Normalisation : uint8_t {
    token,     // their mean over the global batch                                               Yu et al. 2025 (DAPO)
    sequence,  // the mean over completions of the mean over each one's tokens                    Shao et al. 2024
    constant   // their sum, divided by completions x max_completion_length              Liu et al. 2025 (Dr. GRPO)
  };
  struct Spec {
    double clip_eps_low = 0.2, clip_eps_high = 0.2;
    double kl_beta = 0;
    Normalisation normalisation = Normalisation::token;
    int64_t max_completion_length = 0;  // constant alone
    int64_t num_sequences = 0;          // of a global batch
  };
  // What the sampler left of a completion. The span must stay valid.
  struct Sampled {
    double advantage;
    std::span<const double> old_logps;  // of each of its tokens
    int64_t first_target;               // the place in the sequence that predicts the first of them
  };
  // By batch, from 0, and sequence of it.
  using SampledOf = std::function<Sampled(int64_t batch, int64_t sequence)>;

  static constexpr int kSums = 5;  // of each sequence: policy loss, kl, ratio, tokens that were clipped, tokens
  Grpo(const Spec& spec, SampledOf sampled) : spec_(spec), sampled_(std::move(sampled)) {}

  bool scores_first() const override { return true; }
  size_t num_frozen() const override { return 1; }
  int num_sums() const override { return kSums; }
  void sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const override;
  void weigh(const Scores& scores, Sums sums, std::span<double> weights) const override;
  double divisor(int64_t counted) const override;
  double loss(double weighted, Sums sums) const override;
  // policy_loss, normalised as the loss; kl, ratio_mean and clip_fraction, means over the tokens of the global batch.
  Terms terms(Sums sums) const override;

 private:
  struct Token {
    double policy, kl, ratio;
    bool clipped;
    double slope;  // derivative of its loss by logp
  };
  Token token(double logp, double ref, const Sampled& sampled, size_t i) const;
  // f(row, token) for every target of the micro-batch that counts.
  template <class F>
  void for_each_token(const Scores& scores, std::span<const double> counted, const F& f) const;
  double normalised(Sums sums, int sum) const;

  const Spec spec_;
  const SampledOf sampled_;
};

}  // namespace weft
