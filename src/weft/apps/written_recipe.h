// The file that a plan writes a recipe to (--write).
#pragma once
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// Throws ConfigError where it is the recipe itself, or something that must not be replaced; empty: there is none.
void require_written_recipe(const std::string& write, const std::string& recipe, bool again);

// Writes a recipe that was made of the one in the file `from` with these settings, and the [islands] of that.
void write_planned_recipe(const std::string& write, const Recipe& made, const std::string& from,
                          const std::vector<std::string>& overrides);

}  // namespace weft
