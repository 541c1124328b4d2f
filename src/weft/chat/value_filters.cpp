// Filters of numbers and of any value, and how a filter is found.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "weft/chat/arguments.h"
#include "weft/chat/builtins.h"
#include "weft/chat/operators.h"
#include "weft/chat/strings.h"
#include "weft/tokenize/unicode.h"

namespace weft::chat {
namespace {

// The number in a text as Python's float() takes it; nothing: it is none.
std::optional<double> parsed_real(std::string text) {
  text = strip(text, {}, Side::kBoth);
  std::erase(text, '_');
  if (text.find_first_of("xXpP(") != std::string::npos) return {};
  char* end = nullptr;
  const double x = std::strtod(text.c_str(), &end);
  return text.empty() || *end != 0 ? std::nullopt : std::optional(x);
}
std::optional<int64_t> parsed_whole(std::string text, int base) {
  text = strip(text, {}, Side::kBoth);
  std::erase(text, '_');
  char* end = nullptr;
  errno = 0;
  const long long x = std::strtoll(text.c_str(), &end, base);
  if (errno != 0) fail("a whole number beyond 64 bits");
  return text.empty() || *end != 0 ? std::nullopt : std::optional<int64_t>(x);
}
std::optional<int64_t> cut_off(double x) {
  if (!(std::abs(x) < 9.2e18)) return {};
  return int64_t(x);
}

Value as_whole(Budget&, const Value& v, const Given& g) {
  const Value fallback = g[0] == nullptr ? Value(0) : *g[0];
  const int64_t base = g.number(1, 10);
  if (base != 0 && (base < 2 || base > 36)) fail("int: a base from 2 to 36");
  std::optional<int64_t> result;
  if (v.is_string()) {
    result = parsed_whole(v.string(), int(base));
    if (const auto real = parsed_real(v.string()); !result && real) result = cut_off(*real);
  } else if (v.is<double>()) {
    result = cut_off(number(v));
  } else if (v.is_whole() || v.is_undefined()) {
    result = whole(v);
  }
  return result ? Value(*result) : fallback;
}

Value as_real(Budget&, const Value& v, const Given& g) {
  const Value fallback = g[0] == nullptr ? Value(0.0) : *g[0];
  if (v.is_string()) {
    const auto x = parsed_real(v.string());
    return x ? Value(*x) : fallback;
  }
  return v.is_number() || v.is_undefined() ? Value(number(v)) : fallback;
}

Value rounded(Budget&, const Value& v, const Given& g) {
  const int64_t digits = g.number(0, 0);
  const std::string method = g[1] == nullptr ? "common" : g.string(1);
  if (digits < -300 || digits > 300) fail("round: a precision from -300 to 300");
  const double x = number(v), scale = std::pow(10.0, double(digits));
  if (method == "ceil") return std::ceil(x * scale) / scale;
  if (method == "floor") return std::floor(x * scale) / scale;
  if (method != "common") fail("round: \"common\", \"ceil\" or \"floor\"");
  if (v.is_whole() && digits >= 0) return whole(v);
  if (!std::isfinite(x)) return x;
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", x, digits).c_str(), nullptr);
  const double result = std::nearbyint(x * scale) / scale;
  return v.is_whole() ? Value(int64_t(result)) : Value(result);
}

Value absolute(Budget&, const Value& v, const Given&) {
  if (v.is<double>()) return std::abs(number(v));
  return whole(v) < 0 ? signed_number("-", v) : Value(whole(v));
}

Value length(Budget& budget, const Value& v, const Given&) {
  if (v.is_undefined()) return 0;
  if (v.is_dict()) return int64_t(v.dict().items().size());
  if (v.holds<List>() && v.list().kind != List::Kind::kGenerator) return int64_t(v.list().items.size());
  if (v.holds<Loop>()) return int64_t(std::get<std::shared_ptr<Loop>>(v.of)->items.size());
  if (!v.is_string()) fail(fmt::format("a value of type {} has no length", kind_of(v)));
  budget.read(v.string().size());
  return count_characters(v.string());
}

Value or_default(Budget&, const Value& v, const Given& g) {
  const bool missing = v.is_undefined() || (g.flag(1, false) && !truth(v));
  return missing ? (g[0] == nullptr ? Value("") : *g[0]) : v;
}

Value attribute(Budget& budget, const Value& v, const Given& g) { return member_of(budget, v, g.string(0)); }

constexpr Filter kValueFilters[] = {
    {"abs", "", absolute},
    {"attr", "name", attribute},
    {"count", "", length},
    {"d", "default_value boolean", or_default},
    {"default", "default_value boolean", or_default},
    {"float", "default", as_real},
    {"int", "default base", as_whole},
    {"length", "", length},
    {"round", "precision method", rounded},
};

// What is safe after a filter.
Value with_safety(std::string_view name, const Value& before, Value after) {
  constexpr std::string_view kMakes[] = {"safe", "e", "escape"};
  constexpr std::string_view kKeeps[] = {"upper",  "lower",  "capitalize", "trim",
                                         "string", "indent", "format",     "reverse"};
  const auto in = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return in(kMakes) || (before.is_safe() && in(kKeeps)) ? safe(std::move(after)) : after;
}

}  // namespace

std::span<const Filter> value_filters() { return kValueFilters; }

Value apply_filter(Budget& budget, const std::string& name, const Value& value, const Arguments& arguments) {
  budget.step();
  for (const auto& filters : {text_filters(), list_filters(), value_filters()})
    for (const Filter& f : filters)
      if (f.name == name)
        return with_safety(name, value, f.apply(budget, value, Given("the filter " + name, f.parameters, arguments)));
  fail(fmt::format("the filter \"{}\" is not supported", name));
}

}  // namespace weft::chat
