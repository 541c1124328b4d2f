// The trials of a sweep as processes: each `weft train` of its own, on cores of its own.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "weft/apps/supervised_attempt.h"

namespace weft {

struct TrialProcess {
  std::vector<std::string> command = {};
  std::filesystem::path log = {};  // what it prints goes behind what is there
};

// How a trial's process ended: with this exit status (128 + signal), and its last words, "" if it had none.
struct TrialEnd {
  int status = 0;
  std::string error = {};
};

// Starts as many at once as `jobs`, each on its share of this process's cores, until all have ended; `ended` is told of
// each, by its place in `trials`. A request to stop reaches those that go as SIGTERM, after which they save, and starts
// no other; another one, in earnest, ends them at once: `ended` is told of none of these. They end with this process.
// Throws Error where no process can be started.
void run_trials(const std::vector<TrialProcess>& trials, int64_t jobs, StopRequests& requests,
                const std::function<void(size_t, const TrialEnd&)>& ended);

// The cores of place `place` of `jobs`, of those that are given: consecutive ones, each to one place.
std::vector<int> cores_of_place(const std::vector<int>& cores, int64_t place, int64_t jobs);

}  // namespace weft
