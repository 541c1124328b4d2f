// [islands] of a recipe: how this job is joined to others that train the same model (docs/islands.md). A value of its
// own beside the Recipe, for it says nothing of what the job itself does between two exchanges.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/recipe/recipe_keys.h"

namespace weft {

struct Islands {
  int64_t count = 0;   // of all; 0: the job is no island
  int64_t number = 0;  // of this one, from 0
  std::string address = {}, secret_file = {};
  int64_t sync_every = 50, fragments = 1;  // steps; parts of the weights, which are exchanged in turn
  double outer_lr = 0.7, outer_momentum = 0.9;
  std::string wire_precision = "f32";
  double timeout_seconds = 60;
  int64_t max_staleness = 1;  // rounds

  bool are_joined() const { return count > 0; }
  bool operator==(const Islands&) const = default;
};

// The keys of the table, in the order of the file. Fields point into `islands`.
std::vector<RecipeKey> island_keys(Islands& islands);
// Values that do not fit each other, or the recipe.
std::vector<Conflict> island_conflicts(const Islands& islands, const Recipe& recipe);

// The table of a recipe, with overrides: reads and judges the whole recipe, as parse_recipe_file does, and throws as
// that.
Islands parse_islands_file(const std::string& path, const std::vector<std::string>& overrides);
Islands parse_islands(const std::string& toml, const std::string& source, const std::vector<std::string>& overrides);

// The table as TOML, to stand behind that of the recipe; empty where the job is no island.
std::string to_toml(const Islands& islands);
// "islands.count: 2 there, 4 here" for every key that differs and may not change when a run is resumed.
std::vector<std::string> island_differences(const Islands& there, const Islands& here);
// What all islands of a run must have alike, a line for each, for the hub to compare.
std::string shared_settings(const Islands& islands, const Recipe& recipe);

// Throws ConfigError where a recipe of islands asks for what islands cannot do yet, or for what has no effect: each
// such setting by name, with the reason and the nearest that works.
void check_islands_supported(const Islands& islands, const Recipe& recipe);

}  // namespace weft
