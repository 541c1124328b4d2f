// Communicators that know how long ranks wait for them.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "weft/comm/process_mesh.h"

namespace weft {

struct CommTime {
  double blocked_s = 0;          // in which the rank could do nothing else: exposed
  double under_way_s = 0;        // from a call to its end, hidden or not
  int64_t calls = 0, bytes = 0;  // of the tensors that this rank passed
};
// By axis: "dp", "tp", "pp", "shards", "replicas", "world".
using CommTimes = std::map<std::string, CommTime>;

// The same mesh, which adds to `times`; both must outlive the result. `now_s`: a steady clock, in seconds.
ProcessMesh timed(const ProcessMesh& mesh, CommTimes& times, std::function<double()> now_s);

}  // namespace weft
