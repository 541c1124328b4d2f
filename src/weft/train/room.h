// Whether the ranks of a layout fit where they are, before anything begins.
#pragma once
#include "weft/plan/layout_plan.h"
#include "weft/train/machine.h"

namespace weft {

// The bytes of one rank's plan; not with_host: without memory that the host reaches. Where several plans may be the
// rank's (Muon's whole matrices go to ranks in turns), the least counts.
int64_t planned_bytes(const LayoutPlan& plan, int rank, bool with_host = true);

// For ranks that are threads of this process. Throws ConfigError, with the device's name and ranks, if the plans of the
// ranks that share a device need more memory than is free there.
void require_room(const Machine& machine, const LayoutPlan& plan);

}  // namespace weft
