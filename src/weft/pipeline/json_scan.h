// Finds the end of a JSON value in a stream, and errors of its grammar, without building the value.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// Whether it stands for itself in a string.
inline bool is_plain_in_string(char c) { return uint8_t(c) >= 0x20 && c != '"' && c != '\\'; }

// Follows one value. Does not check numbers, words, escapes, or that strings are UTF-8.
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

}  // namespace weft
