// A machine of several devices for ranks that are threads.
#pragma once
#include "several_devices.h"
#include "train/late_backend.h"

namespace weft::testing {

// Each is asynchronous and has memory of its own: an op that touches another rank's memory crashes.
inline Machine on_several(const Machine& machine, const std::shared_ptr<SeveralDevices>& devices) {
  constexpr int64_t kStaging = 4096;
  const auto mover = make_device_mover(devices, host_mover(), kStaging);
  std::vector<Machine> each;
  for (int d = 0; d < devices->count(); ++d) {
    each.push_back(late_behind(devices->guard(d), machine));
    each.back().memory = devices->memory(d);
    each.back().mover = mover;
  }
  Machine all = each[0];
  all.devices = std::move(each);
  return all;
}

}  // namespace weft::testing
