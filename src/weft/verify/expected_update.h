// What a step's update should make of the weights, by the optimizers' formulas written once more: plainly, on whole
// tensors, from the gradients that the step had.
#pragma once
#include "weft/verify/run_record.h"

namespace weft {

// How much rounding may change a training step: as a bound, and as measured. docs/verify.md derives it.
double unit_roundoff(PrecisionChoice precision);  // of f32, bf16, fp16

// How far from fp64 one rank's step may be by the roundings of its precision alone: relative, of a tensor's farthest
// element. A bound of arithmetic: it takes every operation's errors to go on as large as they are. Where they grow, the
// step itself is ill-conditioned.
class RoundingBound {
 public:
  RoundingBound(const Recipe& recipe, const ModelSpec& model);
  double of(int64_t step, Quantity quantity) const;  // step from 0
  // All errors of a step in units of those that rounding its results makes; at least 1.
  double beside_results() const { return beside_results_; }

 private:
  double gradient_ = 0, beside_results_ = 1;
};

// A backend around the reference backend that rounds every result of forward and backward to so many bits as the
// precision has: what the roundings alone do to a step.
DecorateBackend rounded_to(PrecisionChoice precision);

// How far a run's optimizer state and weights are after each step from what the formulas make of the step's gradients,
// and of state and weights before it; the norm, from that of the gradients. Clipping is part of it. `recipe` is the
// run's: its learning rate is constant. The weights that Muon orthogonalizes are not looked at, their momentum is.
Distances update_distances(const RunRecord& record, const Recipe& recipe);

}  // namespace weft
