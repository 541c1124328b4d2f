// How long the actions of a step take over a whole pipeline. Pure functions.
#pragma once
#include "weft/schedule/simulate.h"

namespace weft {

// The makespan of `num_micro_batches` by simulate. A long step repeats itself: it is run at two short lengths, and what
// lies between them is added as often as it takes.
double seconds_of_step(const Pipeline& pipeline, const ActionTimes& times, int64_t num_micro_batches);

}  // namespace weft
