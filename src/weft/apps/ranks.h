// The processes that share a run. The one file that includes their engine is ranks.cpp.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "weft/train/train_on_ranks.h"

namespace weft {

// This process among those of a run: by default the only one, whose ranks are threads.
struct RankProcess {
  int rank = 0;
  std::vector<int> here = {};  // ranks on this host, which share its cores; none: all of the layout
  RunRanks run = run_on_threads;
  std::function<void()> finish = [] {};  // returns when every rank is there
  // Called when this rank fails: tells the others why; ends all processes with a status.
  std::function<void(const std::string& why)> tell_failure;
  std::function<void(int status)> abort;
  bool leads() const { return rank == 0; }
};

// Throws ConfigError, with the reason, where this program was built without MPI.
void check_mpi_is_built_in();
// Joins the others that an MPI launcher has started. Throws WorldError if there are not `world` of them. `run` says
// how long to wait for ranks that do not come, and for one from which nothing comes; a rank that is missed while all
// must meet is said as `command`'s error (StartWatch). To be called once.
RankProcess join_mpi(int world, const Recipe::Run& run, const std::string& command);
// Runs `body` as one of the processes, and ends them all where it throws: a failure is said by the first rank for all.
int run_as_rank(const RankProcess& process, const std::string& command, const std::function<int()>& body);
// For a failure that all ranks find: gives the first rank two seconds to report it and to end the others, so that a
// message stands there once and not once a rank. Nothing but the number of messages depends on it. There is nobody to
// coordinate with: such a failure comes before ranks have found each other, or ends what connects them; the launcher
// may be one of the user's own, which prints what comes; and whoever exits first makes it end the others, who then
// could not report what they alone know.
void let_the_first_rank_speak(int rank);

}  // namespace weft
