// A run's folder: one recipe, its records and its checkpoints.
#pragma once
#include <filesystem>
#include <string>

#include "weft/base/number_locks.h"
#include "weft/recipe/recipe.h"

namespace weft {

// Makes run.dir the folder of this recipe: creates it with recipe.toml, or, where that is there already, checks that it
// is the same run (only settings that do not change the result may differ) and updates it. Throws ConfigError that
// names every difference; nothing is overwritten then.
RunLock claim_run_folder(const Recipe& recipe);

// Throws ConfigError that names every difference between a recipe and that of a run (a file that weft wrote) which this
// run may not have: all but settings that do not change the result, and the length of the run (run_length.h). `what`
// begins the message.
void refuse_another_recipe(const Recipe& recipe, const std::filesystem::path& file, const std::string& what);

// Writes recipe.toml anew, for the owner of the folder.
void write_run_recipe(const Recipe& recipe);

}  // namespace weft
