#include "weft/apps/unequal_recipe.h"

#include "weft/apps/backends.h"
#include "weft/base/error.h"

namespace weft {

Recipe recipe_on(const UnequalCluster& cluster, const std::string& path, const std::vector<std::string>& overrides) {
  Recipe recipe = read_recipe(path, overrides, true, &cluster.kinds[0]);
  for (const ClusterSpec& kind : cluster.kinds) {
    const Recipe other = read_recipe(path, overrides, false, &kind);
    if (other.train.precision == recipe.train.precision) continue;
    const auto is_one = [&](PrecisionChoice p) { return recipe.train.precision == p || other.train.precision == p; };
    throw ConfigError(fmt::format(
        "train.precision = \"auto\" takes {} on {} and {} on {}; what works on both: train.precision = \"{}\"",
        recipe.train.precision, cluster.kinds[0].device.name, other.train.precision, kind.device.name,
        is_one(PrecisionChoice::f32) ? PrecisionChoice::f32 : PrecisionChoice::fp16));
  }
  return recipe;
}

}  // namespace weft
