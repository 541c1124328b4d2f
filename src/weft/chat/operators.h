// Python's operators, members and items of values.
#pragma once
#include <string>

#include "weft/chat/value.h"

namespace weft::chat {

// + - * / // % **. Throws Error where the operands have none, where whole numbers go beyond 64 bits, or by zero.
Value binary(Budget& budget, const std::string& op, const Value& a, const Value& b);
// - or + before a number.
Value signed_number(const std::string& op, const Value& v);

// v.name: a method, else what a dictionary or namespace has under this name; undefined where there is none. Throws
// Error where v is undefined.
Value member_of(Budget& budget, const Value& v, const std::string& name);
// v[key]; if there is no such item, the member of this name.
Value item_of(Budget& budget, const Value& v, const Value& key);
// v["a"]["b"] of "a.b"; numbers in it are places.
Value attribute_of(Budget& budget, const Value& v, const Value& path);
// v[from:to:by]; none: left out.
Value slice_of(Budget& budget, const Value& v, const Value& from, const Value& to, const Value& by);

}  // namespace weft::chat
