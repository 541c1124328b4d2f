// How much rounding may change a training step: as a bound, and as measured. docs/verify.md derives it.
#pragma once
#include "weft/verify/run_record.h"

namespace weft {

double unit_roundoff(const std::string& precision);  // of f32, bf16, fp16

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
DecorateBackend rounded_to(const std::string& precision);

}  // namespace weft
