// Rows of JSON whose bulk is one text: read and written many times faster than JSON in general, to the same result.
#pragma once
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/json.h"

namespace weft {

// Whether it stands for itself in a string.
inline bool is_plain_in_string(char c) { return uint8_t(c) >= 0x20 && c != '"' && c != '\\'; }

// Follows one value to its end, without building it, and finds errors of its grammar. Does not check numbers, words,
// escapes, or that strings are UTF-8.
class JsonScan {
 public:
  // The next bytes. Returns how many of them are the value's: all, unless it ends or breaks within them.
  size_t take(std::string_view bytes);
  bool done() const { return state_ == State::kDone; }
  // The error found; empty: none so far.
  std::string_view broken() const { return broken_; }
  bool has_line_feed() const { return line_feed_; }

 private:
  enum class State : uint8_t { kValue, kFirst, kFirstKey, kKey, kColon, kNext, kString, kEscape, kWord, kDone };
  void end_value() { state_ = open_.empty() ? State::kDone : State::kNext; }
  bool structural(char c);  // false: it cannot stand here
  bool begin_value(char c);
  bool begin_key(char c);
  bool close(char opening);

  State state_ = State::kValue;
  bool is_key_ = false, line_feed_ = false;
  std::string open_;  // { and [ that are not closed yet
  std::string_view broken_;
};

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
