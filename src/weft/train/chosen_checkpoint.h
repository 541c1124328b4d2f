// A run that goes on from a checkpoint of another run, or from an older one of its own, in a folder of its own.
#pragma once
#include <filesystem>

#include "weft/recipe/recipe.h"

namespace weft {

// Throws ConfigError or FileError where `checkpoint` is none, is of a run whose recipe differs in more than a resumed
// run's may, is beyond the recipe's last step, or is damaged (it is read, all of it); and where the recipe's run folder
// has a run already. Changes nothing.
void judge_chosen(const Recipe& recipe, const std::filesystem::path& checkpoint);

// Makes the checkpoint RUN/checkpoints/step-N of the recipe's run, from which it then goes on as from one of its own.
// Weights are not copied where the file system can give them a second name. For the first rank, when the run's folder
// is its own. Throws FileError.
void take_chosen(const Recipe& recipe, const std::filesystem::path& checkpoint);

}  // namespace weft
