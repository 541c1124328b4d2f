// How a run's rate changes with the number of devices, and what it loses by.
#pragma once
#include <string>
#include <vector>

#include "weft/forecast/forecast.h"

namespace weft {

// One size of the cluster. The layout is the recipe's with more data-parallel ranks, each of which has as many
// sequences of a step as before (weak scaling).
struct ScalePoint {
  int64_t devices = 0;
  RunForecast forecast;
  double efficiency = 1;  // the rate of a device beside that of the first point
  std::string cause;      // the part of a step that grew most since the first point, in seconds; empty: none did
};

struct DeviceRange {
  int64_t low = 1, high = 1;
};
// "8..16384", or one number. Throws ConfigError for what is neither.
DeviceRange device_range(const std::string& text);

// The recipe at `low` devices (or the next number its layout divides) and each doubling up to `high`. Throws
// ConfigError where no multiple of its tp x pp x cp lies in the range, where its ranks have unequal shares, and what
// forecasts throw.
std::vector<ScalePoint> scale(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                              const Profiles& profiles, DeviceRange range);
// A line for each point, with a bar.
std::string to_string(const std::vector<ScalePoint>& points);

}  // namespace weft
