// Devices to rent, by provider, region and hour, beside those that somebody owns. docs/formats/offers.md
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/forecast/device.h"

namespace weft {

inline constexpr int kHoursOfWeek = 168;  // the first one begins on Monday at 0:00, UTC

// Of a device, in one hour of the week; 0: not offered then.
struct HourPrice {
  double on_demand = 0, spot = 0;
  double preemptions_per_device_hour = 0;  // of spot devices
};

struct Offer {
  std::string name;     // "somebody, eu-west"
  ClusterSpec cluster;  // with these devices, all of which a run has
  double bytes_per_s = 0,
         price_per_byte = 0;  // at which a checkpoint goes there or comes from there; of one that leaves
  double start_s = 0;         // until devices that were asked for are ready
  std::array<HourPrice, kHoursOfWeek> hours = {};
};

struct Offers {
  std::optional<Offer> owned;  // every hour at one price, which is also paid while a run is elsewhere
  std::vector<Offer> rented;
};

// Throws ConfigError that says file, line, key and what would be right. `cluster_named` reads a preset or a file.
Offers parse_offers(const std::string& toml, const std::string& source,
                    const std::function<ClusterSpec(const std::string&)>& cluster_named);

}  // namespace weft
