// The file that a plan writes a recipe to (--write).
#pragma once
#include <string>

namespace weft {

// Throws ConfigError where it is the recipe itself, or something that must not be replaced; empty: there is none.
void require_written_recipe(const std::string& write, const std::string& recipe, bool again);

}  // namespace weft
