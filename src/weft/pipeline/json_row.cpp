#include "weft/pipeline/json_row.h"

#include <fmt/format.h>

#include <optional>

#include "weft/base/ascii.h"
#include "weft/base/utf8.h"
#include "weft/tokenize/unicode.h"

namespace weft {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.';
}

}  // namespace

size_t JsonScan::take(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size() && !done()) {
    const char c = bytes[at];
    if (state_ == State::kString) {
      while (at < bytes.size() && is_plain_in_string(bytes[at])) ++at;
      if (at == bytes.size()) break;
      if (bytes[at] == '"') {
        is_key_ ? void(state_ = State::kColon) : end_value();
      } else if (bytes[at] == '\\') {
        state_ = State::kEscape;
      } else {
        broken_ = "a control character, as a line's end, within a string";
        return at;
      }
    } else if (state_ == State::kEscape) {
      state_ = State::kString;
    } else if (state_ == State::kWord) {
      if (!is_word(c)) {
        end_value();
        continue;
      }
    } else if (is_space(c)) {
      line_feed_ |= c == '\n';
    } else if (!structural(c)) {
      return at;
    }
    ++at;
  }
  return at;
}

bool JsonScan::structural(char c) {
  switch (state_) {
    case State::kFirst:
      return c == ']' ? close('[') : begin_value(c);
    case State::kFirstKey:
      return c == '}' ? close('{') : begin_key(c);
    case State::kKey:
      return begin_key(c);
    case State::kColon:
      if (c != ':') return broken_ = "no colon behind a key", false;
      state_ = State::kValue;
      return true;
    case State::kNext:
      if (c == ']' || c == '}') return close(c == ']' ? '[' : '{');
      if (c != ',') return broken_ = "neither a comma nor a bracket behind a value", false;
      state_ = open_.back() == '{' ? State::kKey : State::kValue;
      return true;
    default:
      return begin_value(c);
  }
}

bool JsonScan::begin_value(char c) {
  if (c == '{' || c == '[') {
    open_ += c;
    state_ = c == '{' ? State::kFirstKey : State::kFirst;
  } else if (c == '"') {
    is_key_ = false;
    state_ = State::kString;
  } else if (is_word(c)) {
    state_ = State::kWord;
  } else {
    return broken_ = "no value where one must be", false;
  }
  return true;
}

bool JsonScan::begin_key(char c) {
  if (c != '"') return broken_ = "no key where one must be", false;
  is_key_ = true;
  state_ = State::kString;
  return true;
}

bool JsonScan::close(char opening) {
  if (open_.back() != opening) return broken_ = "a bracket that closes none", false;
  open_.pop_back();
  end_value();
  return true;
}

namespace {

constexpr size_t kNone = std::string_view::npos;

// Where the string that begins at the quote `at` ends, behind its closing quote; npos: it does not.
size_t string_end(std::string_view json, size_t at) {
  for (size_t from = at + 1;;) {
    const size_t quote = json.find('"', from);
    if (quote == kNone) return kNone;
    size_t slashes = quote;
    while (json[slashes - 1] == '\\') --slashes;  // ends at the opening quote at the latest
    if ((quote - slashes) % 2 == 0) return quote + 1;
    from = quote + 1;
  }
}

struct Place {
  size_t begin = 0, end = 0;  // of a string, with its quotes
};

// The string that is the value of `key` in the outermost object. Looks for it only: the JSON may be broken.
std::optional<Place> find_string(std::string_view json, std::string_view key) {
  int depth = 0;
  bool expects_key = false, is_value = false;  // of the outermost object; of our key
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') {
      const size_t end = string_end(json, at);
      if (end == kNone) return {};
      if (is_value) return Place{at, end};
      is_value = expects_key && json.substr(at + 1, end - at - 2) == key;
      expects_key = false;
      at = end - 1;
    } else if (c == '{' || c == '[') {
      expects_key = ++depth == 1 && c == '{';
      is_value = false;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',') {
      expects_key = depth == 1;
      is_value = false;
    }
  }
  return {};
}

// The four digits of a \u at the beginning; nothing: there are none.
std::optional<uint32_t> hex4(std::string_view text) {
  uint32_t code = 0;
  if (text.size() < 4) return {};
  for (const char c : text.substr(0, 4)) {
    const int digit = hex_digit(c);
    if (digit < 0) return {};
    code = code << 4 | uint32_t(digit);
  }
  return code;
}

// Appends the character of a \u whose digits begin at `at`, which then stands behind it; false: it is none.
bool append_escaped(std::string& text, std::string_view string, size_t& at) {
  const auto first = hex4(string.substr(at));
  if (!first || (*first >= 0xdc00 && *first < 0xe000)) return false;
  at += 4;
  uint32_t code = *first;
  if (code >= 0xd800 && code < 0xdc00) {
    if (!string.substr(at).starts_with("\\u")) return false;
    const auto second = hex4(string.substr(at + 2));
    if (!second || *second < 0xdc00 || *second >= 0xe000) return false;
    code = 0x10000 + ((code - 0xd800) << 10) + (*second - 0xdc00);
    at += 6;
  }
  append_character(text, code);
  return true;
}

// What stands between a string's quotes; nothing: it is not as it should be.
std::optional<std::string> unescaped(std::string_view string) {
  if (utf8_error(string) != kNone) return {};
  std::string text;
  text.reserve(string.size());
  for (size_t at = 0; at < string.size();) {
    size_t end = at;
    while (end < string.size() && is_plain_in_string(string[end])) ++end;
    text += string.substr(at, end - at);
    if (end == string.size()) break;
    if (string[end] != '\\' || end + 1 == string.size()) return {};
    at = end + 2;
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    if (const size_t which = kNames.find(string[end + 1]); which != kNone)
      text += kMeant[which];
    else if (string[end + 1] != 'u' || !append_escaped(text, string, at))
      return {};
  }
  return text;
}

}  // namespace

JsonRow parse_json_row(std::string_view row, std::string_view text_key, std::string_view where, JsonLimits limits) {
  const std::optional<Place> place = row.size() <= limits.max_bytes ? find_string(row, text_key) : std::nullopt;
  std::optional<std::string> text;
  if (place) text = unescaped(row.substr(place->begin + 1, place->end - place->begin - 2));
  if (text) {
    std::string rest(row.substr(0, place->begin + 1));
    rest += row.substr(place->end - 1);
    return {parse_json(rest, where, limits), std::move(*text), true};
  }
  JsonRow all{parse_json(row, where, limits), "", false};
  const auto found = all.json.is_object() ? all.json.find(text_key) : all.json.end();
  if (found == all.json.end() || !found->is_string()) return all;
  std::swap(all.text, found->get_ref<std::string&>());
  all.has_text = true;
  return all;
}

void append_json_string(std::string& json, std::string_view text) {
  std::string copy;
  text = well_formed(text, copy);
  json += '"';
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_plain_in_string(text[end])) ++end;
    json += text.substr(at, end - at);
    if (end == text.size()) break;
    constexpr std::string_view kNames = "\"\\bfnrt", kMeant = "\"\\\b\f\n\r\t";
    if (const size_t which = kMeant.find(text[end]); which != kNone)
      (json += '\\') += kNames[which];
    else
      json += fmt::format("\\u{:04x}", int(text[end]));
    at = end + 1;
  }
  json += '"';
}

}  // namespace weft
