#include "weft/forecast/search_parts.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int64_t kMostUnused = 64;  // devices, of which fewer are looked for

}  // namespace

SearchValue search_value(const SearchSpec& spec, double step_s, const DevicesUsed& used) {
  switch (spec.objective) {
    case SearchObjective::time:
      return {step_s, double(used.devices)};
    case SearchObjective::price:
      return {used.price_per_hour / 3600 * step_s, step_s};
    case SearchObjective::energy:
      return {used.watts * step_s, step_s};
    case SearchObjective::ranks:
      break;
  }
  return {double(used.devices), step_s};
}

bool is_too_slow(const SearchSpec& spec, double step_s, const DevicesUsed& used) {
  const double run_s = step_s * double(spec.steps);
  return (spec.deadline_s > 0 && run_s > spec.deadline_s) ||
         (spec.budget > 0 && run_s / 3600 * used.price_per_hour > spec.budget);
}

void require_searchable(const Recipe& recipe) {
  if (recipe.parallel.recompute == RecomputeKind::budget)
    throw ConfigError(
        "the search cannot run with parallel.recompute = \"budget\": it tries none, selective and full of every "
        "layout; "
        "the nearest that works: parallel.recompute = \"none\" and no parallel.memory_budget, and \"budget\" with the "
        "layout that it finds");
  require_priced(recipe);
  if (recipe.train.objective != ObjectiveKind::cross_entropy)
    throw ConfigError(fmt::format(
        "the search cannot run with train.objective = \"{}\": its bounds know no forward-only passes; the nearest that "
        "works: train.objective = \"cross_entropy\", and then --cluster with the objective and the layout that it "
        "finds",
        recipe.train.objective));
}

std::string usable_text(const SearchSpec& spec, const Recipe& recipe, const ModelSpec& model,
                        const ClusterSpec& cluster) {
  const int64_t most = spec.device_counts.back();
  std::string text = fmt::format("no layout is of {} devices: the batch of {} sequences and the model cannot be cut so",
                                 most, recipe.train.global_batch_size);
  int64_t refused = 0;
  for (int64_t n = most - 1; n >= std::max<int64_t>(1, most - kMostUnused); --n)
    if (!layouts_on(n, recipe, model, cluster, refused).empty())
      return text + fmt::format("; {} can be used, and {} left over", n, most - n);
  return text;
}

}  // namespace weft
