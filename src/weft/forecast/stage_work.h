// The parts of work_of and price_step for those who plan and price each stage by itself.
#pragma once
#include <string>

#include "weft/forecast/profile.h"
#include "weft/forecast/work.h"

namespace weft {

// What the stage whose step this is computes, sends and needs, at the rates of this cluster's devices and links. `plan`
// is that of rank 0 of the same layout. Not of a teacher with axes of its own. Throws what planning throws.
StageWork work_of_stage(const RunPlan& plan, const StepSpec& step, const ClusterSpec& cluster);
// What stages have of the model and recompute, as a text: equal where they are alike.
std::string stage_kind(const RunPlan& plan, const StepSpec& step);

// What a program reaches of the rates of such work on devices of a generation (DeviceSpec), beside those of generation
// 0.
double part_on_generation(const ProgramProfile& profile, WorkClass work, int generation);

}  // namespace weft
