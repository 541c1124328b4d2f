// Filters, tests, and methods of values.
#pragma once
#include <string>

#include "weft/chat/value.h"

namespace weft::chat {

// Each throws Error for what it does not know, by name.
Value apply_filter(Budget& budget, const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(Budget& budget, const std::string& name, const Value& value, const Arguments& arguments);

// The method of a string, list or dictionary, as a function; undefined: it has none of this name. The budget must
// outlive it.
Value method_of(Budget& budget, const Value& owner, const std::string& name);
// Whether Python has a method of this name that changes the value.
bool changes_its_owner(const Value& owner, const std::string& name);

// format % values, and format.format(arguments). Of a safe format, values are escaped.
Value percent_format(Budget& budget, const Value& format, const Value& values);
Value brace_format(Budget& budget, const Value& format, const Arguments& arguments);

}  // namespace weft::chat
