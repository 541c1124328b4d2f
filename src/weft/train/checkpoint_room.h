// Whether the checkpoints of a run fit on its disk, before it begins.
#pragma once
#include <string>

#include "weft/plan/run_plan.h"
#include "weft/recipe/recipe.h"

namespace weft {

// Compares the size of the checkpoints with the free space at run.dir, and with the limit on file sizes. Returns a
// warning, in bytes, where later saves would fail; empty: all fit, or the file system does not say. Throws FileError
// where the run has no checkpoint yet, and not even its first fits.
std::string judge_checkpoint_room(const Recipe& recipe, const RunPlan& plan);

}  // namespace weft
