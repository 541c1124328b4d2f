// What a step minimises: over the targets of its global batch, the sum of weight x loss, divided by a number.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/ops/ops.h"
#include "weft/sharding/sequence_cut.h"

namespace weft {

// Gives the weights and the number. Losses and their gradients are the head's, which computes them chunk by chunk
// whatever the objective is. Called on each rank for its micro-batches.
class Objective {
 public:
  virtual ~Objective() = default;
  // Whether it weighs targets by their losses under the weights as they are, and under those of how many frozen models:
  // then the step begins with forward-only passes over its global batch, which are planned like the rest. Must equal
  // StepSpec::scores_first and StepSpec::num_frozen.
  virtual bool scores_first() const { return false; }
  virtual size_t num_frozen() const { return 0; }
  // Whether these passes are also made over other sequences of the same shape (Executor::StepInput::others), of which
  // it only sums. Must equal StepSpec::scores_others.
  virtual bool scores_others() const { return false; }
  // Whether it also weighs values, of a model that predicts them. Must equal StepSpec::predicts_values.
  virtual bool weighs_values() const { return false; }
  // How it is beside a teacher, another model; none where it has none. Must equal StepSpec::teacher's. Losses are then
  // what this makes of each target's divergence and cross-entropy, weighted alike.
  virtual std::optional<Distillation> distillation() const { return {}; }
  // By how many sums over the targets of each sequence of the global batch, too. Must equal StepSpec::num_sums.
  virtual int num_sums() const { return 0; }
  // The losses of one micro-batch's targets, from those passes: [tokens], 0 where a target does not count, and on
  // stages without the head.
  struct Scores {
    std::span<const double> own;                  // none unless scores_first
    std::vector<std::span<const double>> frozen;  // of each of those models
    std::span<const double> values = {};          // the model's own, 0 as above; none unless weighs_values
    int64_t batch = 0;                            // of the run, from 0 (Executor::StepInput)
    int64_t first_sequence = 0;                   // the micro-batch's first, of those of the global batch
    SequenceCut sequences = {};                   // what is here of each of them
    bool others = false;                          // of the other sequences: what `sum` alone is asked for
  };
  // Adds to `sums` [sequences of the micro-batch][num_sums] what the targets here have; they are 0 at first, and each
  // target is asked for once, whatever the layout; then those of the others, which come on top. `counted` [tokens] is 1
  // where a target counts, else 0.
  virtual void sum(const Scores&, std::span<const double> /*counted*/, std::span<double> /*sums*/) const {}
  // Those of the whole global batch, [sequences][num_sums]: the same on every rank.
  using Sums = std::span<const double>;
  // Whether it weighs targets at all: if not, they have the weights with which the batch came.
  virtual bool weighs() const { return true; }
  // `weights` [tokens] hold 1 where a target counts, else 0, and receive its weight.
  virtual void weigh(const Scores& scores, Sums sums, std::span<double> weights) const = 0;
  // What a step calls. `values` [tokens], none unless weighs_values, also hold 1 or 0, and receive the weight of each
  // target's value, whose loss is minus the value.
  virtual void weigh_both(const Scores& scores, Sums sums, std::span<double> weights,
                          std::span<double> /*values*/) const {
    weigh(scores, sums, weights);
  }
  // What the step divides by, where so many targets of the global batch count; of an objective that does not weigh
  // them, where the batch's weights are so much together.
  virtual double divisor(int64_t counted) const = 0;

  // The loss, of which the sum of weight x loss, divided (`weighted`), has the gradient; and what else there is to say
  // of the step, by the names of metrics.jsonl. Before the update; the same on every rank.
  virtual double loss(double weighted, Sums) const { return weighted; }
  using Terms = std::vector<std::pair<std::string, double>>;
  virtual Terms terms(Sums) const { return {}; }
  // The same of several global batches together, at least one: where a term is no mean over as many in each of them,
  // this is not the mean of what `terms` says of each.
  virtual Terms terms_of_all(std::span<const std::vector<double>> batches) const {
    Terms all = terms(batches[0]);
    for (const auto& batch : batches.subspan(1)) {
      const Terms more = terms(batch);
      for (size_t i = 0; i < all.size(); ++i) all[i].second += more[i].second;
    }
    for (auto& [name, value] : all) value /= double(batches.size());
    return all;
  }
  // The same beside a teacher, of the sums of both losses, divided.
  virtual Terms taught_terms(double /*divergence*/, double /*cross_entropy*/) const { return {}; }
};

// Cross-entropy of the next token: the mean over the targets that count, by the weights with which they came.
class NextToken final : public Objective {
 public:
  bool weighs() const override { return false; }
  void weigh(const Scores&, Sums, std::span<double>) const override {}
  double divisor(int64_t counted) const override { return counted > 0 ? double(counted) : 1; }
};
inline const NextToken kNextToken;

}  // namespace weft
