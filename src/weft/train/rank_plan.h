// The plan that a rank of a run has.
#pragma once
#include "weft/comm/communicator.h"
#include "weft/plan/run_plan.h"

namespace weft {

// Collective over all ranks of the run, where the plan has what ranks must agree about: throws ConfigError on all of
// them where one of them cannot plan, or where kernels need other temporaries on other ranks (other processors, or
// threads), so that these would have chosen other blocks to be computed again.
RunPlan plan_of_rank(const Recipe& recipe, const WorkspaceModel& workspace, Communicator& world);

}  // namespace weft
