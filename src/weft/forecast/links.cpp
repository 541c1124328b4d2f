#include "weft/forecast/links.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr double kRoughLatency = 0.7;  // of sqrt(time x latency): messages of middling size reach less of a link

constexpr double kPeerLatency = 0.5e-6;  // of each rank that an exchange of all with all also sends to

constexpr double kSwitchSums = 0.74;  // of the gain that switches have which add up themselves (NVLink 4 and later)

// Rate of scale-up among `ranks` of a domain: without a switch a pair has its own few links alone.
double inside_rate(const ClusterSpec& cluster, int ranks) {
  const double rate = cluster.scale_up.bytes_per_s;
  if (cluster.switched || ranks >= cluster.domain || cluster.domain < 3) return rate;
  return rate * std::max(1, ranks - 1) / (cluster.domain - 1);
}

}  // namespace

LinkTime link_time(Exchange what, double bytes, AxisSpread spread, const ClusterSpec& cluster) {
  LinkTime time;
  const bool inside = spread.is_inside();
  const double up = inside_rate(cluster, spread.in_domain), out = cluster.scale_out.bytes_per_s;
  time.latency_s = inside ? cluster.scale_up.latency_s : cluster.scale_out.latency_s;
  if (what == Exchange::message) {
    (inside ? time.inside_s : time.outside_s) = bytes / (inside ? up * cluster.point_part : out);
    return time;
  }
  const double domains = std::ceil(double(spread.ranks) / spread.in_domain);
  if (what == Exchange::all_to_all) {  // each rank of a domain has a link of its own
    const double far = inside ? 0 : double(spread.ranks - spread.in_domain) / std::max(1, spread.ranks - 1);
    time.inside_s = bytes * (1 - far) / (up * cluster.point_part);
    time.outside_s = far > 0 ? bytes * far / out : 0;
    time.latency_s += kPeerLatency * (spread.ranks - 1);
    return time;
  }
  // A ring through all of them, and sums through a tree where that is shorter: as many links leave a domain as it has
  // ranks of the axis.
  if (!inside) time.hops = what == Exchange::all_reduce ? 2 * std::log2(domains) : domains - 1;
  double ring = up * cluster.scale_up_part;
  if (what == Exchange::all_reduce && inside && cluster.switched && cluster.device.generation > 0)
    ring *= std::max(1.0, kSwitchSums * 2 * (spread.ranks - 1) / spread.ranks);
  time.hops_by_rank = !inside && what == Exchange::gather ? spread.ranks - 1 : time.hops;
  (inside ? time.inside_s : time.outside_s) = bytes / (inside ? ring : std::min(ring, out * spread.in_domain));
  return time;
}

double seconds_of(const LinkTime& time, double network, double hop_s) {
  const double at_rate = time.inside_s + time.outside_s / network, latency = time.latency_s + time.hops * hop_s;
  return at_rate + latency + kRoughLatency * std::sqrt(at_rate * latency);
}

}  // namespace weft
