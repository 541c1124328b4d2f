// Whether the ranks of a layout fit where they are, before anything begins.
#pragma once
#include "weft/plan/layout_plan.h"
#include "weft/train/machine.h"

namespace weft {

// Of ranks that are threads of this process. Throws ConfigError, with the device's name and its ranks, where those that
// share a device take more by their plans than is free there now. Where which rank has which plan is not said (Muon's
// whole matrices, which fall to ranks in turns), the least counts.
void require_room(const Machine& machine, const LayoutPlan& plan);

}  // namespace weft
