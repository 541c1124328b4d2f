#include "weft/schedule/step_time.h"

namespace weft {

double seconds_of_step(const Pipeline& pipeline, const ActionTimes& times, int64_t num_micro_batches) {
  const auto run_for = [&](int64_t n) { return simulate(pipeline, schedules_of(pipeline, n), times).makespan; };
  const int64_t stages = pipeline.num_stages, longest = 4 * stages;
  if (num_micro_batches <= longest + stages) return run_for(num_micro_batches);
  const int64_t longer = longest + num_micro_batches % stages;  // the last round may be shorter than the others
  const double at_longer = run_for(longer), each = (at_longer - run_for(longer - stages)) / double(stages);
  return at_longer + each * double(num_micro_batches - longer);
}

}  // namespace weft
