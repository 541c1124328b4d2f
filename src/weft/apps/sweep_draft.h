// A smaller model of the same kind, on which a sweep tries its values first.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// The config.json of the recipe's model with these values, "key=value"; "layers" is the number of layers, whatever it
// is called there. Throws ConfigError where the recipe begins with weights, or the config has no such key; FileError.
nlohmann::json draft_config(const Recipe& recipe, const std::vector<std::string>& values);
// Makes a folder of it, with what else the model's folder has beside weights: its tokenizer.
void write_draft(const Recipe& recipe, const nlohmann::json& config, const std::filesystem::path& folder);

}  // namespace weft
