// Any bytes as offers of devices to rent: refused with an Error, or every hour has prices that can be paid.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "weft/base/error.h"
#include "weft/forecast/offers.h"

namespace {

void check(const weft::Offer& offer, bool owned) {
  if (offer.cluster.num_devices < 1 || !(offer.bytes_per_s > 0) || !(offer.price_per_byte >= 0)) std::abort();
  bool any = owned;
  for (const weft::HourPrice& hour : offer.hours) {
    if (!(hour.on_demand >= 0) || !(hour.spot >= 0) || !std::isfinite(hour.preemptions_per_device_hour)) std::abort();
    any = any || hour.on_demand > 0 || hour.spot > 0;
  }
  if (!any) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const weft::Offers offers =
        weft::parse_offers(text, "fuzz", [](const std::string& name) { return weft::preset_of(name); });
    if (offers.owned) check(*offers.owned, true);
    for (const weft::Offer& offer : offers.rented) check(offer, false);
  } catch (const weft::Error&) {}
  return 0;
}
