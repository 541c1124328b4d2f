// What failures cost a run of months: the time that is lost, and how often to save.
#pragma once
#include <cstdint>
#include <vector>

namespace weft {

struct FailureSpec {
  double mean_s_between = 0;  // failures of the whole cluster, any of its devices
  double save_s = 0;          // that a checkpoint stops the run
  double restart_s = 0;       // from a failure to the first step after it
};

// The interval between checkpoints that loses least, in seconds.      Daly 2006, eq. 37; beyond its range, the mean
// time
double best_save_interval(const FailureSpec& spec);
// How long a run of `work_s` takes on average, with failures (at random, one by one) and checkpoints each `interval_s`.
//                                                                                                      Daly 2006, eq.
//                                                                                                      20
double expected_run_s(double work_s, double interval_s, const FailureSpec& spec);
// The same by playing `runs` runs with random failures: what each took, the shortest first; and their mean. Runs that
// fail in nearly every interval take for ever: ask for those that expected_run_s says end.
std::vector<double> simulated_runs_s(double work_s, double interval_s, const FailureSpec& spec, uint64_t seed,
                                     int runs);
double simulated_run_s(double work_s, double interval_s, const FailureSpec& spec, uint64_t seed, int runs);

}  // namespace weft
