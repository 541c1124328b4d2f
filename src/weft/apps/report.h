// What `weft inspect` found, once, and its two looks: JSON for programs, columns for people.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

// An object of facts: numbers, texts, lists of them, objects, and tables (lists of objects with the same keys). Keys
// are words joined by underscores; one that ends in "bytes" holds a size.
using Report = nlohmann::ordered_json;

// One line for each fact; tables stand below, under their key. Control characters of texts (names in a file that
// somebody else wrote) are shown, not sent.
std::string to_text(const Report& report);

}  // namespace weft
