// Which layout a run takes when there are other numbers of ranks than its recipe's.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// The recipe on so many ranks at most, in settings of [parallel] that fleet.may_change allows; the global batch, the
// micro-batch and so the order of the data are the recipe's.
struct FleetLayout {
  Recipe recipe;
  int64_t ranks = 0;
  std::string why = {};  // "the fastest by the forecast for H100-SXM: 12.5 ms a step"
};

// What a layout is judged by: why it does not fit into memory; empty: it does.
using DoesNotFit = std::function<std::string(const Recipe&)>;

// The layouts that the recipe allows on exactly so many ranks, the one first that a rule of thumb takes for the fastest
// (ranks x share of the time that a pipeline is filled, less what is computed twice), and of equals the one that
// changes least. The rule knows no memory and no links.
std::vector<Recipe> layouts_for(const Recipe& recipe, int64_t ranks);

// The recipe's own layout where there are ranks for it and no more than it may use. Else of all that fit on at most
// `available` ranks, of which the recipe allows fleet.min_ranks to fleet.max_ranks, the fastest: by the forecast for
// fleet.cluster, or by the rule of thumb. None: there is none. Throws ConfigError where fleet.cluster is none.
std::optional<FleetLayout> choose_layout(const Recipe& recipe, int64_t available, const DoesNotFit& does_not_fit);

// "dp 2, pp 2, zero 1": as events tell a layout.
std::string words_of_layout(const Recipe& recipe);

// The settings that make a layout of the recipe, as the command line has them: "parallel.dp=2".
std::vector<std::string> settings_between(const Recipe& recipe, const Recipe& layout);

}  // namespace weft
