// `weft plan --search`: the best layouts on a cluster.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/unequal_recipe.h"
#include "weft/apps/written_recipe.h"
#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/layout_search.h"
#include "weft/forecast/unequal_search.h"
#include "weft/plan/layout.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

// `num_devices`: of the cluster; 0: as many as the recipe asks for.
SearchSpec spec_of(const PlanOptions& options, const Recipe& recipe, const ClusterSpec& cluster, int64_t num_devices) {
  SearchSpec spec;
  if (!options.ranks.empty())
    spec.device_counts = device_counts_of(options.ranks, cluster);
  else
    spec.device_counts = {num_devices > 0 ? num_devices : mesh_sizes_of(recipe).world()};
  const auto objective = choice_named<SearchObjective>(options.objective);
  if (!objective)
    throw ConfigError(fmt::format("--objective {}: must be one of time, price, energy, ranks", options.objective));
  spec.objective = *objective;
  if (!options.deadline.empty()) spec.deadline_s = seconds_of_duration(options.deadline);
  spec.budget = options.budget;
  spec.steps = recipe.train.epochs > 0 ? 0 : recipe.train.train_iters;
  spec.reserve_bytes = usual_reserve(cluster);
  spec.threads = usable_cores();
  return spec;
}

void require_equal_steps(const Recipe& recipe) {
  if (has_phases(recipe))
    throw ConfigError(
        "--search cannot run: the recipe's steps differ ([[phase]] or train.rampup_batch_size); the "
        "nearest that works: a recipe of the phase that takes longest, alone");
}

// On devices of several kinds.
int search_on(const UnequalCluster& cluster, const PlanOptions& options) {
  const Recipe recipe = recipe_on(cluster, options.recipe, options.overrides);
  require_equal_steps(recipe);
  require_written_recipe(options.write, options.recipe, options.again);
  const SearchSpec spec = spec_of(options, recipe, cluster.kinds[0], cluster.num_devices());
  const UnequalSearchResult result =
      search_unequal(recipe, read_hf_config(recipe.model.path), cluster, Profiles::built_in(), spec);
  if (!options.write.empty() && !result.best.empty())
    write_planned_recipe(options.write, result.best[0].applied_to(recipe), options.recipe, options.overrides);
  std::cout << (options.json ? to_json(result, spec).dump(1) + "\n" : to_string(result, cluster, spec));
  return result.best.empty() ? kExitFailure : kExitOk;
}

}  // namespace

int run_plan_search(const PlanOptions& options) {
  if (is_unequal(options.cluster)) return search_on(read_unequal_cluster(options.cluster), options);
  const ClusterSpec cluster = read_cluster(options.cluster);
  const Recipe recipe = read_recipe(options.recipe, options.overrides, true, &cluster);
  require_equal_steps(recipe);
  require_written_recipe(options.write, options.recipe, options.again);
  const SearchSpec spec = spec_of(options, recipe, cluster, cluster.num_devices);
  const SearchResult result =
      search_layouts(recipe, read_hf_config(recipe.model.path), cluster, Profiles::built_in(), spec);
  if (!options.write.empty() && !result.best.empty())
    write_planned_recipe(options.write, with_choice(recipe, result.best[0].layout), options.recipe, options.overrides);
  std::cout << (options.json ? to_json(result, spec).dump(1) + "\n" : to_string(result, spec));
  return result.best.empty() ? kExitFailure : kExitOk;
}

}  // namespace weft
