// What a step's update should make of the weights, by the optimizers' formulas written once more: plainly, on whole
// tensors, from the gradients that the step had.
#pragma once
#include "weft/verify/run_record.h"

namespace weft {

// How far a run's optimizer state and weights are after each step from what the formulas make of the step's gradients,
// and of state and weights before it; the norm, from that of the gradients. Clipping is part of it. `recipe` is the
// run's: its learning rate is constant. The weights that Muon orthogonalizes are not looked at, their momentum is.
Distances update_distances(const RunRecord& record, const Recipe& recipe);

}  // namespace weft
