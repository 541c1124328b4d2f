// A value of the recipe from TOML. The only header here that needs the TOML library.
#pragma once

namespace weft {
[[noreturn]] void fail_toml(const char* condition);
}
// Some texts ("[$a]") break conditions that the library takes for granted: it would abort, or with NDEBUG go on from
// there. So they are checked, always, and become errors.
#undef NDEBUG
#undef TOML_ASSERT
#define TOML_ASSERT(condition) ((condition) ? void() : ::weft::fail_toml(#condition))
#include <toml++/toml.h>

#include <string>

#include "weft/recipe/recipe_keys.h"

namespace weft {

// Throws ConfigError, beginning with `source:line:column`, for what is no TOML, or is nested beyond all sense.
toml::table parse_toml(const std::string& text, const std::string& source);

// Stores the value in the key's field if that is allowed; an only value stands for a list of one, "" for an empty list.
bool read_value(const RecipeKey& key, const toml::node& value);

// A value for messages: one line, cut where it is long.
std::string shown(const toml::node& value);

}  // namespace weft
