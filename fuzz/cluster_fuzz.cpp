// Any bytes as a cluster's file and as programs' profiles: refused with an Error, or what is printed of it is read
// again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const weft::ClusterSpec cluster = weft::parse_cluster(text, "fuzz");
    if (!(cluster.device.products.bits16 > 0) || cluster.domain < 1) std::abort();
  } catch (const weft::Error&) {}
  try {
    if (weft::Profiles::parse(text, "fuzz").all().empty()) std::abort();
  } catch (const weft::Error&) {}
  return 0;
}
