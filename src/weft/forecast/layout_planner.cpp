#include "weft/forecast/layout_planner.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/forecast/search_parts.h"
#include "weft/plan/run_plan.h"
#include "weft/recipe/recipe_keys.h"

namespace weft {

Recipe checked_recipe(const Recipe& recipe, const LayoutChoice& choice) {
  Recipe r = with_choice(recipe, choice);
  if (const auto bad = conflicts(r); !bad.empty())
    throw ConfigError(fmt::format("{}: must be {}", bad[0].key, bad[0].expected));
  check_supported(r);
  return r;
}

LayoutPlanner::Known& LayoutPlanner::known_of(const LayoutChoice& choice) {
  std::lock_guard lock(mutex_);
  return known_[choice];
}

std::optional<int64_t> LayoutPlanner::first_stage_bytes(const LayoutChoice& choice) {
  Known& known = known_of(choice);
  std::call_once(known.measured, [&] {
    try {
      const RunPlan plan = prepare_run(checked_recipe(recipe_, choice), config_, 0);
      known.first_stage = measure_memory(plan.model, plan.step, *plan.optimizer, WorkspaceModel()).total_bytes();
    } catch (const ConfigError&) {
    } catch (const PlacementError&) {}
  });
  return known.first_stage;
}

std::optional<FoundLayout> LayoutPlanner::plan(const LayoutChoice& choice) {
  Known& known = known_of(choice);
  std::call_once(known.planned, [&] {
    try {
      const RunForecast f = forecast_run(checked_recipe(recipe_, choice), config_, cluster_, profiles_);
      known.whole = FoundLayout{.layout = choice,
                                .step = f.step,
                                .memory_bytes = f.memory_bytes(),
                                .tokens_per_s = f.tokens_per_s(),
                                .mfu = f.mfu(),
                                .price = f.price_per_step(),
                                .joules = f.joules_per_step()};
    } catch (const ConfigError&) {
    } catch (const PlacementError&) {}
  });
  return known.whole;
}

}  // namespace weft
