// Which backends this program was built with. The one file that includes them is backends.cpp.
#pragma once
#include <string>

#include "weft/recipe/recipe.h"
#include "weft/train/machine.h"

namespace weft {

// The machine that `run.backend`, `run.threads` and `train.numerics` of a recipe ask for. threads 0: the cores that
// this process may use. Throws ConfigError for a backend that is not there.
Machine machine_for(const Recipe& recipe);

}  // namespace weft
