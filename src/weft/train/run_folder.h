// A run's folder: one recipe, its records and its checkpoints.
#pragma once
#include "weft/base/run_lock.h"
#include "weft/recipe/recipe.h"

namespace weft {

// Makes run.dir the folder of this recipe: creates it with recipe.toml, or, where that is there already, checks that it
// is the same run (only settings that do not change the result may differ) and updates it. Throws ConfigError that
// names every difference; nothing is overwritten then.
RunLock claim_run_folder(const Recipe& recipe);

}  // namespace weft
