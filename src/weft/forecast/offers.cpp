#include "weft/forecast/offers.h"

#include <algorithm>
#include <charconv>

#include "weft/base/error.h"
#include "weft/forecast/toml_values.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
constexpr int kHoursOfDay = 24;
constexpr double kMostPrice = 1e9, kBytesOfGB = 1e9, kSecondsOfMinute = 60;

// "mon-fri,sun": whether it names each of so many things, which go round: fri-mon are four days.
std::vector<bool> named_in(const std::string& text, size_t count, bool ends_before,
                           const std::function<std::optional<size_t>(std::string_view)>& number_of) {
  std::vector<bool> named(count, false);
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, comma - at);
    const size_t dash = part.find('-');
    const auto first = number_of(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number_of(part.substr(dash + 1));
    if (!first || !last || *first >= count || (ends_before && *first == *last)) return {};
    // Hours end before the last one, days with it.
    const size_t span = (*last + count - *first) % count;
    const size_t length = !ends_before ? span + 1 : span == 0 ? count : span;
    for (size_t i = 0; i < length; ++i) named[(*first + i) % count] = true;
    at = comma + 1;
  }
  return named;
}

std::vector<bool> days_in(const TomlTable& table) {
  std::string text = "mon-sun";
  table.get("days", text);
  auto days = named_in(text, kDays.size(), false, [](std::string_view day) -> std::optional<size_t> {
    const auto found = std::find(kDays.begin(), kDays.end(), day);
    return found == kDays.end() ? std::nullopt : std::optional(size_t(found - kDays.begin()));
  });
  if (days.empty())
    throw ConfigError(
        fmt::format("{}: days = \"{}\": must be days or ranges of them, as mon-fri or sat,sun", table.place(), text));
  return days;
}

std::vector<bool> hours_in(const TomlTable& table) {
  std::string text = "0-24";
  table.get("hours", text);
  auto hours = named_in(text, kHoursOfDay, true, [](std::string_view hour) -> std::optional<size_t> {
    int value = 0;
    const auto [end, error] = std::from_chars(hour.data(), hour.data() + hour.size(), value);
    if (error != std::errc() || end != hour.data() + hour.size() || value < 0 || value > kHoursOfDay)
      return std::nullopt;
    return size_t(value);
  });
  if (hours.empty())
    throw ConfigError(fmt::format(
        "{}: hours = \"{}\": must be ranges of whole hours from 0 to 24, UTC, as 8-20 or 22-6", table.place(), text));
  return hours;
}

void read_price(const TomlTable& table, Offer& offer) {
  HourPrice price;
  table.get("per_device_hour", price.on_demand, 1e-9, kMostPrice);
  table.get("spot_per_device_hour", price.spot, 1e-9, kMostPrice);
  table.get("preemptions_per_device_hour", price.preemptions_per_device_hour, 0, 1e3);
  table.refuse_others({"days", "hours", "per_device_hour", "spot_per_device_hour", "preemptions_per_device_hour"});
  if (price.on_demand == 0 && price.spot == 0)
    throw ConfigError(
        fmt::format("{}: a price is missing: per_device_hour, spot_per_device_hour or both", table.place()));
  const std::vector<bool> days = days_in(table), hours = hours_in(table);
  for (size_t day = 0; day < days.size(); ++day)
    for (size_t hour = 0; hour < hours.size(); ++hour)
      if (days[day] && hours[hour]) offer.hours[day * kHoursOfDay + hour] = price;
}

// What owned and rented devices have in common.
Offer read_site(const TomlTable& table, const std::function<ClusterSpec(const std::string&)>& cluster_named) {
  Offer offer;
  std::string cluster;
  table.need("cluster", cluster);
  offer.cluster = cluster_named(cluster);
  if (!offer.cluster.measured.empty())
    throw ConfigError(fmt::format(
        "{}: cluster = \"{}\": was measured ([[measured]]), and no layout can be searched for on it; the nearest that "
        "works: a preset, or a cluster's file without [[measured]]",
        table.place(), cluster));
  int devices = 0;
  table.get("devices", devices, 1, kMostRanks);
  if (devices == 0) throw ConfigError(fmt::format("{}: devices is missing: how many a run has there", table.place()));
  if (offer.cluster.num_devices > 0 && devices > offer.cluster.num_devices)
    throw ConfigError(fmt::format("{}: devices = {}, but cluster = \"{}\" has {}", table.place(), devices, cluster,
                                  offer.cluster.num_devices));
  offer.cluster.num_devices = devices;
  double gb_s = 1;
  table.get("gb_s", gb_s, 1e-6, 1e6);
  offer.bytes_per_s = gb_s * kBytesOfGB;
  return offer;
}

Offer read_owned(const TomlTable& table, const std::function<ClusterSpec(const std::string&)>& cluster_named) {
  Offer owned = read_site(table, cluster_named);
  owned.name = "owned";
  double price = 0;
  table.get("per_device_hour", price, 0, kMostPrice);
  for (HourPrice& hour : owned.hours) hour.on_demand = price;
  table.refuse_others({"cluster", "devices", "gb_s", "per_device_hour"});
  return owned;
}

Offer read_offer(const TomlTable& table, const std::function<ClusterSpec(const std::string&)>& cluster_named) {
  Offer offer = read_site(table, cluster_named);
  std::string provider, region;
  table.need("provider", provider);
  table.get("region", region);
  offer.name = region.empty() ? provider : fmt::format("{}, {}", provider, region);
  double per_gb = 0, minutes = 0;
  table.get("price_per_gb", per_gb, 0, kMostPrice);
  table.get("start_minutes", minutes, 0, 1e5);
  offer.price_per_byte = per_gb / kBytesOfGB;
  offer.start_s = minutes * kSecondsOfMinute;
  const std::vector<TomlTable> prices = table.tables("price");
  if (prices.empty()) throw ConfigError(fmt::format("{}: [[offer.price]] is missing", table.place()));
  for (const TomlTable& price : prices) read_price(price, offer);
  table.refuse_others({"provider", "region", "cluster", "devices", "gb_s", "price_per_gb", "start_minutes", "price"});
  return offer;
}

}  // namespace

Offers parse_offers(const std::string& toml, const std::string& source,
                    const std::function<ClusterSpec(const std::string&)>& cluster_named) {
  const TomlTable file(toml, source);
  file.refuse_others({"owned", "offer"});
  Offers offers;
  if (file.has("owned")) offers.owned = read_owned(file.table("owned"), cluster_named);
  for (const TomlTable& table : file.tables("offer")) {
    offers.rented.push_back(read_offer(table, cluster_named));
    for (size_t i = 0; i + 1 < offers.rented.size(); ++i)
      if (offers.rented[i].name == offers.rented.back().name)
        throw ConfigError(
            fmt::format("{}: a second [[offer]] \"{}\"; what works: another region, or one offer with "
                        "all [[offer.price]]",
                        table.place(), offers.rented.back().name));
  }
  if (offers.rented.empty() && !offers.owned)
    throw ConfigError(fmt::format("{}: has neither [[offer]] nor [owned]", source));
  return offers;
}

}  // namespace weft
