// Any bytes as a cluster's file and as programs' profiles: refused with an Error, or what is printed of it is read
// again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/profile.h"
#include "weft/forecast/unequal_cluster.h"

namespace {

// Whatever a file says was measured: any size takes some time, and more of it no less.
void check(const weft::MeasuredRanks& m) {
  const auto check_curve = [](const weft::Curve& curve) {
    if (!(curve.of(1) > 0) || !(curve.of(1e9) >= curve.of(1e4))) std::abort();
  };
  for (const weft::OpCurve& op : m.ops) check_curve(op.curve);
  for (const weft::CollectiveCurve& c : m.collectives) check_curve(c.curve);
  for (const weft::RateGrid& grid : m.rates)
    for (const double size : {1.0, 300.0, 1e9})
      if (!(grid.of(size, 77, size) > 0)) std::abort();
}

// What forecasts read of a cluster; and what is printed of it is read again, as the same.
void check(const weft::ClusterSpec& cluster) {
  if (!(cluster.device.products.bits16 > 0) || cluster.domain < 1) std::abort();
  for (const weft::MeasuredRanks& m : cluster.measured) check(m);
  for (int ranks = 1; ranks <= std::min(cluster.devices_per_node, 64); ++ranks)
    if ((weft::measured_of(cluster, ranks) == nullptr) != cluster.measured.empty()) std::abort();
  const weft::ProgramProfile program = weft::program_on(cluster, weft::ProgramProfile());
  for (const weft::ProfileNumber& n : weft::profile_numbers())
    if (!(program.*n.value >= 0)) std::abort();
  const std::string text = to_toml(cluster);
  try {
    if (to_toml(weft::parse_cluster(text, "printed")) != text) std::abort();
  } catch (const weft::Error&) { std::abort(); }
}

// Every device is of some kind, and each kind is what a cluster of its own may be.
void check(const weft::UnequalCluster& cluster) {
  if (cluster.kinds.size() < 2) std::abort();
  for (const weft::ClusterSpec& kind : cluster.kinds) check(kind);
  if (cluster.kind_of(0) != 0 || cluster.kind_of(cluster.num_devices() - 1) != cluster.kinds.size() - 1) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    check(weft::parse_cluster(text, "fuzz"));
  } catch (const weft::Error&) {}
  try {
    check(weft::parse_unequal_cluster(text, "fuzz"));
  } catch (const weft::Error&) {}
  try {
    if (weft::Profiles::parse(text, "fuzz").all().empty()) std::abort();
  } catch (const weft::Error&) {}
  return 0;
}
