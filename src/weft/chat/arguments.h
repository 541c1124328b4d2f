// Binds the arguments of a filter, test, method or function to its parameters.
#pragma once
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "weft/chat/value.h"

namespace weft::chat {

class Given {
 public:
  // `parameters`: names in order, separated by blanks; "*": any, see all(). Throws Error if other arguments were given.
  // Borrows the arguments.
  Given(std::string_view what, std::string_view parameters, const Arguments& arguments);

  const Arguments& all() const { return *all_; }
  // nullptr: not given. operator() demands it.
  const Value* operator[](size_t i) const { return at_[i]; }
  const Value& operator()(size_t i) const;
  bool has(size_t i) const { return at_[i] != nullptr && !at_[i]->is_none(); }

  bool flag(size_t i, bool fallback) const { return at_[i] == nullptr ? fallback : truth(*at_[i]); }
  int64_t number(size_t i, int64_t fallback) const { return has(i) ? whole(*at_[i]) : fallback; }
  const std::string& string(size_t i) const { return need_string((*this)(i), what_); }

 private:
  std::string what_;
  std::array<const Value*, 6> at_{};
  const Arguments* all_;
};

// The filters: in three files, by what they work on.

struct Filter {
  const char* name;
  const char* parameters;  // as Given takes them
  Value (*apply)(Budget& budget, const Value& value, const Given& given);
};

std::span<const Filter> text_filters();
std::span<const Filter> list_filters();
std::span<const Filter> value_filters();

}  // namespace weft::chat
