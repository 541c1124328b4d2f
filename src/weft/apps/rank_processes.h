// The processes of this host that a launcher has started as ranks, as /proc shows them: also while they start, when
// they cannot tell yet.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft {

struct RankProcessHere {
  pid_t id = 0, parent = 0;
  bool stopped = false;  // by a signal
  int64_t cpu = 0;       // time of all its threads, in ticks of the kernel
  bool ended = false;    // and its parent has not asked how
  int rank = -1;         // -1: of none, as far as can be seen
  std::string job = {};  // of the launcher's name for it; empty where it has none
  pid_t supervisor = 0;  // of a supervised attempt; 0: of none, or on another host
};
// All processes of this host that this one may look at.
std::vector<RankProcessHere> processes_here();
// The processes among these that descend from `ancestor`.
std::vector<RankProcessHere> below(pid_t ancestor, const std::vector<RankProcessHere>& all);

// Finds processes that a signal has stopped for `patience_looks` looks, about a second apart. One that has computed
// between two of them was only held up.
class StoppedWatch {
 public:
  explicit StoppedWatch(int patience_looks) : patience_(patience_looks) {}
  // "rank 1 (process 123 on host a) has been stopped by a signal for 10 s"; empty where there is none.
  std::string look(const std::vector<RankProcessHere>& processes);

 private:
  const int patience_;
  struct Seen {
    int looks;
    int64_t cpu;
  };
  std::map<pid_t, Seen> stopped_;
};

}  // namespace weft
