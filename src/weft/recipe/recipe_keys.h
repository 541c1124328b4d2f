// The one list of the recipe's keys: where each value lies, what it may be, what it means.
#pragma once
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

using RecipeField = std::variant<std::string*, int64_t*, double*, bool*, std::vector<std::string>*,
                                 std::vector<double>*, std::optional<double>*>;

struct RecipeKey {
  std::string name;  // "train.seq_length"
  RecipeField field;
  std::string help;
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool below_max = false;  // max itself is not allowed
  std::vector<std::string> choices = {};
  bool may_change = false;  // when a run is resumed: it does not change the result
};

// The keys of `recipe`, in the order of the file.
std::vector<RecipeKey> recipe_keys(Recipe& recipe);

}  // namespace weft
