// Starts the ranks of a run by mpirun, and says how they ended.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "weft/apps/hosts.h"
#include "weft/apps/launch.h"

namespace weft {

struct RanksJob {
  int ranks = 0;
  std::vector<std::string> command;  // that each rank is
  const Launched& launched;
  double start_timeout_s = 0;    // until the first rank runs
  std::vector<Host> hosts = {};  // to start them on, this one first; none: here, or as the batch system says
  // Explains a SIGKILL by lack of memory, if it was one: "; ..." or nothing.
  std::function<std::string()> about_kill = [] { return std::string(); };
};

// Starts the ranks and waits for their end: their exit status. SIGINT, SIGTERM and SIGHUP reach them as a SIGUSR1,
// which asks them to save and stop; a second SIGINT or SIGTERM ends them at once (is_second_wish). They end with this
// process too, and whatever is left of them is killed. An error that a rank tells, and the reason where they did not
// start or were killed, comes once, after all that mpirun and the ranks have written. Throws ConfigError where there is
// no mpirun, or too few files are allowed for it; Error where the ranks did not start or were killed.
int run_ranks_by_mpirun(const RanksJob& job);

}  // namespace weft
