#include "weft/ops/traced.h"

#include <nlohmann/json.hpp>

namespace weft {

std::string to_chrome_trace(const std::vector<TraceEvent>& events) {
  nlohmann::json list = nlohmann::json::array();
  const int64_t origin = events.empty() ? 0 : events.front().start_ns;
  for (const TraceEvent& e : events) {
    list.push_back({{"name", std::string(e.op)},
                    {"cat", e.region},
                    {"ph", "X"},
                    {"pid", 0},
                    {"tid", 0},
                    {"ts", double(e.start_ns - origin) / 1e3},
                    {"dur", double(e.end_ns - e.start_ns) / 1e3}});
  }
  return nlohmann::json{{"traceEvents", list}}.dump();
}

}  // namespace weft
