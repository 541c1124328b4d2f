// Communicators that remember their last calls: for finding out where ranks are when nothing goes on.
#pragma once
#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "weft/comm/process_mesh.h"

namespace weft {

// A call of one rank, whatever the communicator.
struct RecordedCall {
  int64_t number = -1;  // from 0, among all calls of this rank; -1: none
  const char* op = "";  // "all-reduce"
  std::string axis;     // "dp"
  int size = 1;         // ranks of the axis
  int peer = -1;        // of a message: its rank there
  int64_t bytes = 0;
  Site site = {};
  enum class Is : uint8_t { begun, waited, done } is = Is::begun;  // waited: the rank's thread can do nothing else
  double began_s = 0, waited_s = 0, ended_s = 0;                   // std::chrono::steady_clock
  std::string to_string() const;  // "all-reduce 12 (8 bytes, dp of 2) at train/agree.cpp:30"
};

// The last calls of a rank. Thread-safe: the rank's thread writes, others read. Some tens of nanoseconds a call.
class FlightRecord {
 public:
  static constexpr size_t kCalls = 64;
  int64_t begin(RecordedCall call);  // its number
  void waits(int64_t number);
  void ends(int64_t number);
  std::vector<RecordedCall> last() const;  // oldest first

 private:
  RecordedCall* find(int64_t number);
  mutable std::mutex mutex_;
  std::array<RecordedCall, kCalls> calls_;
  int64_t next_ = 0;
};

// The same mesh, which records its calls; the record must outlive it. Communicators of one rank are left as they are.
ProcessMesh recorded(const ProcessMesh& mesh, FlightRecord& record);

}  // namespace weft
