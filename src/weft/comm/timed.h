// Communicators that measure how long ranks wait for them.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weft/comm/process_mesh.h"

namespace weft {

struct CommTime {
  double blocked_s = 0;          // in which the rank's host could do nothing else; without settling
  double under_way_s = 0;        // of every call, from its beginning to its end (CommEvent)
  int64_t calls = 0, bytes = 0;  // of the tensors that this rank passed
};
// By axis: "dp", "tp", "pp", "shards", "replicas", "world".
using CommTimes = std::map<std::string, CommTime>;

// The seconds that the host could do nothing else, of each axis with calls.
std::vector<std::pair<std::string, double>> blocked_by_axis(const CommTimes& times);

// One call. If hosts wait: when it was called, waited for, and that wait ended; the call itself may have ended before.
// If devices wait: when this rank's device ran it, and waited_s is ended_s.
struct CommEvent {
  std::string axis;
  const char* op;
  int64_t bytes;
  double began_s, waited_s, ended_s;
};

struct TimedOptions {
  std::function<double()> now_s;             // std::chrono::steady_clock
  bool at_once = false;                      // waits for each collective where it is called: nothing overlaps
  std::vector<CommEvent>* events = nullptr;  // receives every call that has been waited for, and settled
};
// The same mesh, which adds to `times`; both must outlive the result.
ProcessMesh timed(const ProcessMesh& mesh, CommTimes& times, const TimedOptions& options);

}  // namespace weft
