// What searches share, of devices of one kind and of several.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "weft/forecast/layout_space.h"

namespace weft {

// Throws ConfigError where no search can find a layout for this recipe: its steps or its blocks differ, or it has
// another objective than cross-entropy.
void require_searchable(const Recipe& recipe);

// The recipe with that layout. Throws ConfigError where weft refuses it.
Recipe checked_recipe(const Recipe& recipe, const LayoutChoice& choice);

// Its settings by key.
nlohmann::json settings_json(const LayoutChoice& choice);

}  // namespace weft
