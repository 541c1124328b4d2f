// parallel.recompute = "budget": what each block computes again, so that the plan of every rank takes at most
// parallel.memory_budget, with the least arithmetic. A function of the recipe, the model and what kernels need beside
// their operands; so every rank of a run comes to the same.
#pragma once
#include "weft/plan/run_plan.h"

namespace weft {

// Sets run.recompute and run.step.model.recompute, found by dry runs of a rank of each kind of each stage: one where
// the budget is no limit, else about four and one more, and three for each further kind of block. Does nothing for
// another parallel.recompute. Throws ConfigError where a stage does not fit whatever it computes again: how much it
// needs, and which setting would help.
void settle_recompute(const Recipe& recipe, RunPlan& run, const WorkspaceModel& workspace);

// What the fullest rank takes: where blocks compute again whatever makes it less, and where they keep all. The recipe
// is as with parallel.recompute = "budget", whatever it has.
struct RecomputeRange {
  int64_t least = 0, most = 0;  // bytes
};
RecomputeRange recompute_range(const Recipe& recipe, const RunPlan& run, const WorkspaceModel& workspace);

}  // namespace weft
