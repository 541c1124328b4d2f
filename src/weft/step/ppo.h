// Proximal policy optimisation of completions that were sampled and rewarded elsewhere: the policy follows advantages
// as far as it has not moved too far from the one that sampled them, and a value head beside it learns their returns.
//   logp  log-probability of a completion's token   ratio = exp(logp - old logp)   A  its advantage   R  its return
//   V  the model's value at the place that predicts it (models with ModelSpec::predicts_values)
#pragma once
#include <cstdint>
#include <functional>

#include "weft/step/objective.h"

namespace weft {

// Mean over the tokens of the global batch of policy + value_coef value:     Schulman et al. 2017, eq. 7 and 9
//   policy  -min(ratio A, clip(ratio, 1 - low, 1 + high) A)
//   value   1/2 max((V - R)^2, (V' - R)^2), V' = old V + clip(V - old V, -value_clip, value_clip)
class Ppo final : public Objective {
 public:
  struct Spec {
    double clip_eps_low = 0.2, clip_eps_high = 0.2;
    double value_clip = 0.2, value_coef = 0.5;
  };
  // What is known of a completion, a number for each of its tokens. The spans must stay valid until the next call.
  struct Sampled {
    std::span<const double> advantages, returns, old_logps, old_values;
    int64_t first_target;  // the place in the sequence that predicts the first of them
  };
  // By batch, from 0, and sequence of it.
  using SampledOf = std::function<Sampled(int64_t batch, int64_t sequence)>;

  // Each sequence has: policy loss, value loss, ratio, old logp - logp, tokens clipped by the policy, by the value,
  // tokens.
  static constexpr int kSums = 7;
  Ppo(const Spec& spec, SampledOf sampled) : spec_(spec), sampled_(std::move(sampled)) {}

  bool scores_first() const override { return true; }
  bool weighs_values() const override { return true; }
  int num_sums() const override { return kSums; }
  void sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const override;
  void weigh(const Scores& scores, Sums sums, std::span<double> weights) const override {
    weigh_both(scores, sums, weights, {});
  }
  void weigh_both(const Scores& scores, Sums sums, std::span<double> weights, std::span<double> values) const override;
  double divisor(int64_t counted) const override { return double(counted); }
  double loss(double weighted, Sums sums) const override;
  // policy_loss, value_loss, ratio_mean, approx_kl (of old logp - logp), clip_fraction and value_clip_fraction (where
  // the clipped loss is the larger one): means over the tokens of the global batch.
  Terms terms(Sums sums) const override;

 private:
  struct Token {
    double policy, value, ratio, kl;
    bool clipped, value_clipped;
    double by_logp, by_value;  // derivatives of policy + value_coef value
  };
  Token token(double logp, double value, const Sampled& sampled, size_t i) const;
  // f(row, token) for every target of the micro-batch that counts.
  template <class F>
  void for_each_token(const Scores& scores, std::span<const double> counted, const F& f) const;

  const Spec spec_;
  const SampledOf sampled_;
};

}  // namespace weft
