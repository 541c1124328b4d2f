// A smaller model of the same kind, on which a sweep tries its values first.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// Makes a folder with the recipe's model without its weights, whose config.json has these values, "key=value"; "layers"
// is the number of layers, whatever it is called there. Returns the folder. Throws ConfigError where the recipe begins
// with weights, or the config has no such key; FileError.
std::filesystem::path make_draft(const Recipe& recipe, const std::vector<std::string>& values,
                                 const std::filesystem::path& folder);

}  // namespace weft
