// Whether the ranks of a layout fit where they are, before anything begins.
#pragma once
#include "weft/plan/layout_plan.h"
#include "weft/train/machine.h"

namespace weft {

// For ranks that are threads of this process. Throws ConfigError, with the device's name and ranks, if the plans of the
// ranks that share a device need more memory than is free there. Where ranks may swap plans (Muon's whole matrices go
// to ranks in turns), the smallest counts.
void require_room(const Machine& machine, const LayoutPlan& plan);

}  // namespace weft
