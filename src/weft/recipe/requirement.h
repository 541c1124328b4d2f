// A result that a phase or an export needs: "piqa.acc >= 0.6".
#pragma once
#include <optional>
#include <string>

namespace weft {

struct Requirement {
  std::string result;    // "piqa.acc"
  std::string relation;  // ">=", ">", "<=", "<"
  double bound = 0;

  bool is_met(double value) const;  // not by one that is not finite
  std::string to_string() const;    // "piqa.acc >= 0.6"
};
// None where the text is no requirement.
std::optional<Requirement> parse_requirement(const std::string& text);
inline constexpr const char* kRequirementForm =
    "a result, one of >=, >, <= and <, and a number, as in \"piqa.acc >= 0.6\"";

}  // namespace weft
