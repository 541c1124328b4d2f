// The best layouts of a recipe on devices of several kinds, each with the cut of its blocks, and the shares of its
// ranks of dp, that suit them. The same answer every time, whatever the threads.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/forecast/layout_search.h"
#include "weft/forecast/unequal_forecast.h"

namespace weft {

// A layout as UnequalPlanner forecasts it; `forecast.blocks` is its cut, and `forecast.shares`, where there are any,
// its micro-batches.
struct UnequalLayout {
  LayoutChoice layout = {};
  UnequalForecast forecast = {};
  // The recipe with it: parallel.pipeline_layout too, where it has several stages, and parallel.micro_batches, where
  // its shares are unequal.
  Recipe applied_to(const Recipe& recipe) const;
};

struct UnequalSearchResult {
  std::vector<UnequalLayout> best;  // the best first; each leaves usual_reserve of the smallest device of each stage
  SearchCounts counts = {};         // of layouts
  size_t not_looked_at = 0;         // which might be among the best by their bounds: only so many are planned
  std::string nearest = {};         // where there is none: why, and what comes nearest
};

// A layout of n ranks is on the first n devices of the cluster. Of `spec`, reserve_bytes does not count. Throws
// ConfigError as search_layouts does; objectives by price and power need these figures of every kind.
UnequalSearchResult search_unequal(const Recipe& recipe, const HfConfig& config, const UnequalCluster& cluster,
                                   const Profiles& profiles, const SearchSpec& spec);

std::string to_string(const UnequalSearchResult& result, const UnequalCluster& cluster, const SearchSpec& spec);
nlohmann::json to_json(const UnequalSearchResult& result, const SearchSpec& spec);

}  // namespace weft
