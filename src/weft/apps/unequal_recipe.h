// A recipe for devices of several kinds.
#pragma once
#include <string>
#include <vector>

#include "weft/forecast/unequal_cluster.h"
#include "weft/recipe/recipe.h"

namespace weft {

// As read_recipe, with a precision that all kinds of devices would take by themselves. Throws ConfigError where
// train.precision = "auto" takes another one on each, with what works on all.
Recipe recipe_on(const UnequalCluster& cluster, const std::string& path, const std::vector<std::string>& overrides);

}  // namespace weft
