// The one list of the recipe's keys: where each value lies, what it may be, what it means. Parsing, printing, checks,
// messages, completion and documents are all made from it.
#pragma once
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// A choice of a recipe (choices.h): its names, and the value as the place of one of them.
struct ChoiceField {
  std::span<const std::string_view> names;
  std::function<size_t()> get;
  std::function<void(size_t)> set;
};
template <Choice E>
ChoiceField choice(E& field) {
  return {kNamesOf<E>, [&field] { return size_t(field); }, [&field](size_t place) { field = E(place); }};
}
using RecipeField = std::variant<std::string*, int64_t*, double*, bool*, std::vector<std::string>*,
                                 std::vector<double>*, std::optional<double>*, std::vector<int64_t>*, ChoiceField>;

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();
inline constexpr double kMostCount = std::numeric_limits<int32_t>::max();  // products of two counts are int64_t

// What a value, or each value of a list, may be.
struct Allowed {
  double min = -kNoLimit, max = kNoLimit;     // of numbers, which are never infinite
  bool above_min = false, below_max = false;  // min itself is not allowed; nor max
  std::vector<std::string> choices = {};      // of text that is no choice: the only ones
  std::string example = {};                   // not empty: the key must be given (is_needed), for instance so
};

struct RecipeKey {
  std::string name;  // "train.seq_length"
  RecipeField field;
  Allowed allowed;
  std::string help;
  bool may_change = false;  // when a run is resumed, for what is trained does not depend on it

  // The only values, where these are names.
  std::vector<std::string> choices() const;
  std::string section() const { return name.substr(0, name.find('.')); }
  std::string last() const { return name.substr(name.find('.') + 1); }
};

// The keys of `recipe`, in the order of the file. Fields point into it.
std::vector<RecipeKey> recipe_keys(Recipe& recipe);

// Whether a recipe must have it. Of the data, what its objective reads.
bool is_needed(const RecipeKey& key, const Recipe& recipe);
// False for a setting that another optimizer alone has; or another objective, of [data] or [objective].
bool heeds(OptimizerKind optimizer, const RecipeKey& key);
bool heeds(ObjectiveKind objective, const RecipeKey& key);

// "text", "whole number", "list of texts".
std::string_view type_of(const RecipeKey& key);
// What its value must be: "a whole number of at least 1", "a list of texts", "one of \"fast\", \"invariant\"".
std::string expectation(const RecipeKey& key);
// Its value as TOML; empty where it has none.
std::string value_of(const RecipeKey& key);
// Up to three keys that may have been meant by a name that is none.
std::vector<std::string> keys_like(const std::string& name, const std::vector<RecipeKey>& keys);

// Values that do not fit each other.
struct Conflict {
  std::string key;
  std::vector<std::string> others;  // the keys it does not fit to
  std::string expected;             // of `key`
  std::string nearest = {};         // settings that work, "parallel.dp = 2"; empty: not said
};
std::vector<Conflict> conflicts(const Recipe& recipe);

// Throws ConfigError that lists the problems of a `what`, at most kMostProblems of them; returns where there are none.
inline constexpr size_t kMostProblems = 20;
void refuse(const std::vector<std::string>& problems, const char* what);

}  // namespace weft
