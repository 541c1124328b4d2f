// What one transfer takes over the links of a cluster: the same formulas price training steps and microbenchmarks.
#pragma once
#include <cstdint>

#include "weft/forecast/device.h"

namespace weft {

// How the ranks of an axis are spread: next to each other in domains, or over several.
struct AxisSpread {
  int ranks = 1;
  int in_domain = 1;  // of them in the domain of the first, itself included
  bool is_inside() const { return in_domain == ranks; }
};

// all_reduce; gather: an all-gather or a reduce-scatter, which have rings alone; all_to_all; message: to one rank.
enum class Exchange : uint8_t { all_reduce, gather, all_to_all, message };

struct LinkTime {
  double inside_s = 0, outside_s = 0;  // over the links of scale-up and scale-out, at their rates
  double latency_s = 0;                // however few bytes
  double hops = 0;                     // from domain to domain, one after the other, that a program's hop_us multiplies
  double hops_by_rank = 0;             // the same where each rank's part goes round by itself
};

// `bytes`: what leaves each rank (comm/traffic.h).
LinkTime link_time(Exchange what, double bytes, AxisSpread spread, const ClusterSpec& cluster);

// `network`: part of scale-out's rate that is reached; `hop_s`: seconds of a hop.
double seconds_of(const LinkTime& time, double network, double hop_s);

}  // namespace weft
