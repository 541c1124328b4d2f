// What `weft doctor` has looked at.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// good: as it should be. unknown: the system does not tell. advice: the run goes well, and would go better. warning: it
// may be slow, or fail later. bad: it will fail.
enum class HealthVerdict : uint8_t { good, unknown, advice, warning, bad };
constexpr std::string_view name_of(HealthVerdict v) {
  constexpr std::string_view kNames[] = {"good", "unknown", "advice", "warning", "bad"};
  return kNames[size_t(v)];
}

struct HealthFinding {
  HealthVerdict verdict = HealthVerdict::good;
  std::string what;         // was looked at: "clock governor"
  std::string found;        // as it is
  std::string change = {};  // what to do; empty where it is good or unknown
  std::string cost = {};    // of leaving it
};
using HealthFindings = std::vector<HealthFinding>;

}  // namespace weft
