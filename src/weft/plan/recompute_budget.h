// parallel.recompute = "budget": what each block computes again, so that the plan of every rank takes at most
// parallel.memory_budget, with little arithmetic: the least, so far as what blocks keep adds up as dry runs of blocks
// that are alike say. A function of the recipe, the model and what kernels need beside their operands; so every rank of
// a run comes to the same.
#pragma once
#include "weft/plan/run_plan.h"

namespace weft {

// Sets run.recompute and run.step.model.recompute, found by dry runs: for each stage one of a rank of each kind, and
// where that does not fit, four of the fullest, three for each kind of block where there are several, and one of a rank
// of each kind for each way that is tried. Does nothing for another parallel.recompute. Throws ConfigError where a
// stage does not fit with any way that was tried: how much the least of them needs, and which setting would help.
void settle_recompute(const Recipe& recipe, RunPlan& run, const WorkspaceModel& workspace);

// What the fullest rank takes: with the least way that was found, and where blocks keep all. The recipe is as with
// parallel.recompute = "budget", whatever it has.
struct RecomputeRange {
  int64_t least = 0, most = 0;  // bytes
};
RecomputeRange recompute_range(const Recipe& recipe, const RunPlan& run, const WorkspaceModel& workspace);

}  // namespace weft
