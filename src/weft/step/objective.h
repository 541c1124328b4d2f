// What a step minimises: over the targets of its global batch, the sum of weight x loss, divided by a number.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Gives the weights and the number. Losses and their gradients are the head's, which computes them chunk by chunk
// whatever the objective is. Called on each rank for its micro-batches.
class Objective {
 public:
  virtual ~Objective() = default;
  // Whether it weighs targets by their losses under the weights as they are, and under those of how many frozen models:
  // then the step begins with forward-only passes over its global batch, which are planned like the rest. Must equal
  // StepSpec::scores_first and the number of StepSpec::frozen.
  virtual bool scores_first() const { return false; }
  virtual size_t num_frozen() const { return 0; }
  // The losses of one micro-batch's targets, from those passes: [tokens], 0 where a target does not count, and on
  // stages without the head.
  struct Scores {
    std::span<const double> own;                  // none unless scores_first
    std::vector<std::span<const double>> frozen;  // of each of those models
  };
  // `weights` [tokens] hold 1 where a target counts, else 0, and receive its weight.
  virtual void weigh(const Scores& scores, std::span<double> weights) const = 0;
  // What the step divides by, where so many targets of the global batch count.
  virtual double divisor(int64_t counted) const = 0;
};

// Cross-entropy of the next token: the mean over the targets that count.
class NextToken final : public Objective {
 public:
  void weigh(const Scores&, std::span<double>) const override {}
  double divisor(int64_t counted) const override { return counted > 0 ? double(counted) : 1; }
};
inline const NextToken kNextToken;

}  // namespace weft
