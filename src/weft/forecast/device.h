// What a device, and the links between devices, do at best: plain numbers that forecasts multiply.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/forecast/measured.h"

namespace weft {

// A rate in flop/s, 0 where the device has none of that kind.
struct ProductRates {
  double bits16 = 0, fp8 = 0, fp4 = 0, f32 = 0;
};

struct DeviceSpec {
  std::string name;
  ProductRates peak;      // as the vendor states them, dense
  ProductRates products;  // of the best large matrix products that somebody measured, or what is assumed of them
  double memory_bytes = 0;
  double memory_bytes_per_s = 0;
  int units = 1;            // multiprocessors, over which the tiles of a product are dealt out
  int generation = 0;       // of its matrix units: 0 where kernels written for Ampere are as good as any, 1 Hopper, ...
  double watts = 0;         // 0: not known
  std::string source = {};  // of these figures, and when they were read
};

// What one device sends to others, one way, in bytes/s.
struct LinkSpec {
  double bytes_per_s = 0;
  double latency_s = 0;  // of a collective over it, however small
};

// Devices of one kind in nodes. `domain` devices, one node or several, reach each other by `scale_up`; all others by
// `scale_out`.
struct ClusterSpec {
  DeviceSpec device;
  int devices_per_node = 8, domain = 8;
  int num_devices = 0;          // 0: as many as a recipe asks for
  double scale_up_part = 0.78;  // of a link's rate that a collective reaches over scale_up ...
  double point_part = 0.7;      // ... and one message from device to device
  LinkSpec scale_up, scale_out;
  bool switched = true;                 // scale-up: any two devices may use all of their links
  double failures_per_device_hour = 0;  // that stop a run; 0: not known
  double restart_s = 600;               // from a failure to the first step after it
  double disk_bytes_per_s = 1e9;        // that a device's share of a checkpoint is written at
  double price_per_device_hour = 0;     // in the user's money, by default US dollars; 0: not known
  std::string price_source = {};
  double spot_price_per_device_hour = 0;   // of devices that may be taken away; 0: not known ...
  double preemptions_per_device_hour = 0;  // ... and how often they are; 0: not known
  // What weft took there, by ascending numbers of ranks on a node: read in place of the rates above.
  std::vector<MeasuredRanks> measured = {};
  // Numbers of weft's profile (profile.h) that are others there, by name.
  std::vector<std::pair<std::string, double>> program = {};
};
// Those of the ranks of a node where a layout has so many; null where the cluster was not measured. Throws ConfigError
// where no measurement is of so many.
const MeasuredRanks* measured_of(const ClusterSpec& cluster, int64_t ranks);

// The presets: names as in the docs ("H100-SXM"), and others that sources use ("H100-80GB").
std::vector<std::string> device_names();
// Throws ConfigError that names the nearest where there is none of that name.
ClusterSpec preset_of(std::string_view device);

}  // namespace weft
