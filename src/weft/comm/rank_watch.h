// Tracks what each rank of a process waits for, to find and name deadlocks.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"

namespace weft {

// The ranks that are waited for are there and do not come: stopped, or nothing came from them for too long.
class HangError : public CommError {
 public:
  using CommError::CommError;
};

// One call of a communicator. Two ranks that meet in a collective must say the same, but for the site.
struct CommCall {
  const char* op = "";  // "all-reduce"
  int64_t number = 0;   // from 0, among this rank's collectives on this communicator, or else its sends and receives
  DType dtype = DType::u8;
  int64_t elements = 0;  // of the tensor that every rank has alike
  int peer = -1;         // of send and receive
  Site site = {};
  bool matches(const CommCall& other) const;
  std::string to_string() const;  // "all-reduce 12 of 100 f32 at sharding/gradient_sums.cpp:158"
};

// Thread-safe.
class RankWatch {
 public:
  explicit RankWatch(int ranks) : ranks_(size_t(ranks)) {}
  void waits(int rank, const CommCall& call);
  void goes_on(int rank);
  void ended(int rank);
  // Counts the calls that ranks have begun or ended.
  int64_t changes() const { return changes_; }
  // "rank 0 waits in ...; rank 1 has ended" where no rank is left to end another's wait; else empty.
  std::string stuck() const;

 private:
  enum class Is : uint8_t { busy, waiting, ended };
  struct Rank {
    Is is = Is::busy;
    CommCall call = {};
  };
  mutable std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::atomic<int64_t> changes_{0};
};

}  // namespace weft
