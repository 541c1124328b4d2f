// What supervised runs leave behind on this machine where a signal or a crash has ended a part of their processes.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace weft {

struct Orphans {
  std::vector<pid_t> processes;    // that were ended
  std::vector<std::string> files;  // that were removed
};

// Ends the processes of attempts whose supervisor is no more: they mostly end by themselves, and have `grace_s` for
// it. Removes shared memory (below `shared_memory`) and session folders (below `temporary`) of Open MPI that are this
// user's and this host's, whose processes are gone, and which are some seconds old. What cannot be removed stays.
struct OrphanPlaces {
  std::string shared_memory = "/dev/shm", temporary = "/tmp";
  double grace_s = 3;
};
Orphans reclaim_orphans(const OrphanPlaces& places);

}  // namespace weft
