// Rows of JSON whose bulk is one text: read and written many times faster than JSON in general, to the same result.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "weft/base/json.h"

namespace weft {

struct JsonRow {
  nlohmann::json json;  // as parse_json() gives it, but that the text's string is empty
  std::string text;     // of the key, where it holds a string
  bool has_text = false;
};

// An object with a text under `text_key`. Throws what parse_json() throws.
JsonRow parse_json_row(std::string_view row, std::string_view text_key, std::string_view where, JsonLimits limits);

// Appends the text as a JSON string, with the quotes; what is not UTF-8 becomes U+FFFD.
void append_json_string(std::string& json, std::string_view text);

}  // namespace weft
