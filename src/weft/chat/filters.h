// The filters: in three files, by what they work on.
#pragma once
#include <span>

#include "weft/chat/arguments.h"

namespace weft::chat {

struct Filter {
  const char* name;
  const char* parameters;  // as Given takes them
  Value (*apply)(Budget& budget, const Value& value, const Given& given);
};

std::span<const Filter> text_filters();
std::span<const Filter> list_filters();
std::span<const Filter> value_filters();

}  // namespace weft::chat
