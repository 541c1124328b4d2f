// What searches share, of devices of one kind and of several.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weft/forecast/layout_search.h"

namespace weft {

// What so many of a cluster's devices cost and draw together.
struct DevicesUsed {
  int64_t devices = 0;
  double price_per_hour = 0, watts = 0;
};
// What a search minimises, in this order.
using SearchValue = std::array<double, 2>;
SearchValue search_value(const SearchSpec& spec, double step_s, const DevicesUsed& used);
// Whether the whole run is beyond deadline or budget.
bool is_too_slow(const SearchSpec& spec, double step_s, const DevicesUsed& used);

// Throws ConfigError where no search can find a layout for this recipe: its steps or its blocks differ, or it has
// another objective than cross-entropy.
void require_searchable(const Recipe& recipe);

// The recipe with that layout. Throws ConfigError where weft refuses it.
Recipe checked_recipe(const Recipe& recipe, const LayoutChoice& choice);

// Where there is no layout of as many devices as the search asks for: how many fewer there is one of, as a sentence.
std::string usable_text(const SearchSpec& spec, const Recipe& recipe, const ModelSpec& model,
                        const ClusterSpec& cluster);

// The settings of a layout by key.
nlohmann::json settings_json(const LayoutChoice& choice);
// "1024", "8 to 1024"
std::string device_counts_text(const SearchSpec& spec);
// What became of the layouts: two lines, and the same with what was asked.
std::string counts_text(const SearchCounts& counts);
nlohmann::json counts_json(const SearchCounts& counts, const SearchSpec& spec);

}  // namespace weft
