#include "weft/pipeline/json_scan.h"

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

}  // namespace weft
