// What the page is told of a run (docs/formats/page.md).
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/page/run_view.h"

namespace weft {

// Of a run's number in the list.
nlohmann::ordered_json json_of_run(const RunView& run, size_t number, double now_s,
                                   std::optional<double> price_per_hour);
nlohmann::ordered_json list_entry_of(const RunView& run, size_t number);
nlohmann::ordered_json stream_entry_of(const RunView& run, size_t number);
nlohmann::ordered_json json_of_names(const RunView& run, size_t number);
nlohmann::ordered_json json_of_curves(const RunView& run, size_t number,
                                      const std::vector<MetricsFollower::Window>& windows);
nlohmann::ordered_json json_of_map(const RunView& run, size_t number, const NormMap& map,
                                   const NormMap::Columns& columns);

// "0.1.0" of what programs say of themselves: "weft 0.1.0".
std::string version_of(std::string_view told);

// "nats", "s", "bytes", "tokens/s", "fraction" or empty.
std::string unit_of_curve(const std::string& name);

}  // namespace weft
