// The time of a training step: its work at the rates that a program reaches, played through the pipeline's schedule.
#pragma once
#include <array>
#include <map>
#include <string>

#include "weft/forecast/profile.h"
#include "weft/forecast/work.h"
#include "weft/schedule/simulate.h"

namespace weft {

// Seconds of a step of one rank of the slowest stage; they add up to step_s.
struct StepForecast {
  double step_s = 0;
  std::array<double, kWorkClasses> compute_s = {};
  double launch_s = 0;                           // kernels that are shorter than the way from one to the next
  std::map<std::string, double> exposed_s = {};  // by axis: communication that nothing hides
  double bubble_s = 0;                           // waits for other stages
  double slowdown_s = 0;                         // of computation beside communication
  double compute() const;                        // without launches
  double exposed() const;
};

// How waits for other stages are found: by running the schedule (schedule/simulate.h), or as `factor` times what one
// micro-batch takes in all other stages, which is quick and nearly linear.
struct PipelineTime {
  bool simulated = true;
  double factor = 1;
};
StepForecast price_step(const RunWork& run, const ProgramProfile& profile, const PipelineTime& how = {});
// A forward pass alone, with all that it waits for.
double seconds_of_pass(const ActionWork& pass, const ProgramProfile& profile, int generation);
// The schedule of all stages, each action as long as it is priced; without the end. At most `most_micro_batches` of a
// step's.
Timeline timeline_of(const RunWork& run, const ProgramProfile& profile, int64_t most_micro_batches);
// The factor by which the quick way gives what the simulated one does, with this profile.
double bubble_factor(const RunWork& run, const ProgramProfile& profile);

}  // namespace weft
