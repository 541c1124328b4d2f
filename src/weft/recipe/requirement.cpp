#include "weft/recipe/requirement.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace weft {
namespace {

std::string without_blanks(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t'; });
  return text;
}

}  // namespace

bool Requirement::is_met(double value) const {
  if (!std::isfinite(value)) return false;
  if (relation == ">=") return value >= bound;
  if (relation == ">") return value > bound;
  return relation == "<=" ? value <= bound : value < bound;
}

std::string Requirement::to_string() const { return fmt::format("{} {} {}", result, relation, bound); }

std::optional<Requirement> parse_requirement(const std::string& given) {
  const std::string text = without_blanks(given);
  const size_t at = text.find_first_of("<>"), dot = text.find('.');
  if (at == text.npos || dot == text.npos || dot == 0 || dot + 1 >= at) return {};
  const size_t length = text.substr(at + 1, 1) == "=" ? 2 : 1;
  Requirement r{.result = text.substr(0, at), .relation = text.substr(at, length)};
  const char *begin = text.data() + at + length, *end = text.data() + text.size();
  const auto number = std::from_chars(begin, end, r.bound);
  if (number.ec != std::errc() || number.ptr != end || !std::isfinite(r.bound)) return {};
  return r;
}

}  // namespace weft
