// What a step minimises: over the targets of its global batch, the sum of weight x loss, divided by a number.
#pragma once
#include <cstdint>
#include <span>

namespace weft {

// Gives the weights and the number. Losses and their gradients are the head's, which computes them chunk by chunk
// whatever the objective is. Called on each rank for its micro-batches.
class Objective {
 public:
  virtual ~Objective() = default;
  // Whether it weighs targets by their losses under the weights as they are: then the step begins with a forward-only
  // pass over its global batch, which is planned like the rest. Must equal StepSpec::scores_first.
  virtual bool scores_first() const { return false; }
  // Of one micro-batch: `weights` [tokens] hold 1 where a target counts, else 0, and receive its weight. `losses`
  // [tokens]: of the forward-only pass, 0 where a target does not count, and on stages without the head; none without
  // that pass.
  virtual void weigh(std::span<const double> losses, std::span<double> weights) const = 0;
  // What the step divides by, where so many targets of the global batch count.
  virtual double divisor(int64_t counted) const = 0;
};

// Cross-entropy of the next token: the mean over the targets that count.
class NextToken final : public Objective {
 public:
  void weigh(std::span<const double>, std::span<double>) const override {}
  double divisor(int64_t counted) const override { return counted > 0 ? double(counted) : 1; }
};
inline const NextToken kNextToken;

}  // namespace weft
