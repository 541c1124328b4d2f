// What a run computes in on devices that a cluster's file describes, and why.
#pragma once
#include <string>

#include "weft/forecast/device.h"
#include "weft/recipe/choices.h"

namespace weft {

struct PrecisionReason {
  PrecisionChoice choice = PrecisionChoice::f32;
  std::string why = {};
};
// The fastest that weft trains in there: bf16, fp16 where the device has no bf16, else f32. `devices`: of the run, as
// measured_of takes them.
PrecisionReason precision_on(const ClusterSpec& cluster, int64_t devices);

}  // namespace weft
