// When every action of a step would run. Pure functions: no clock, no thread.
#pragma once
#include <string>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

// One entry per virtual stage, in any unit; backward takes dgrad + wgrad.
struct ActionTimes {
  std::vector<double> forward, dgrad, wgrad;
  double communication = 0;  // from a result on one rank to its use on another
  double of(Do what, int virtual_stage) const;
};
// The same for all virtual stages.
ActionTimes uniform_times(const Pipeline& pipeline, double forward, double dgrad, double wgrad);

// How a rank sends a result to the neighbouring virtual stage. free: without waiting. one_at_a_time: also without
// waiting, but the next result of the same kind (forward, or dgrad and backward) and chunk needs the same buffer, so
// its action starts only when the action that uses the last result has begun. Both wait for what they receive.
enum class Sends { free, one_at_a_time };

struct TimedAction {
  Action action;
  double start, end;
};
struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;  // in the order of their lists
  double makespan = 0;                          // of the step, which begins at 0
  double busy(int rank) const;
  double bubble_fraction(int rank) const { return makespan > 0 ? 1 - busy(rank) / makespan : 0; }
  // Over all ranks.
  double bubble_fraction() const;
};

// What is wrong with the lists of all ranks, naming rank and action; empty if nothing is. Right is: every chunk of each
// rank has, for each of the m micro-batches, one forward, and after it either one backward, or one dgrad and after it
// one wgrad; nothing else. Whether ranks wait for each other for ever, only `simulate` finds.
std::string what_is_wrong(const Pipeline& pipeline, const std::vector<Schedule>& schedules, int64_t num_micro_batches);

// Runs each rank's list in its order, each action as soon as it can. Forward of a virtual stage needs that of the one
// before; dgrad and backward need the same micro-batch's forward, and dgrad or backward of the virtual stage after.
// A CheckFailure where what_is_wrong says something, or where ranks wait for each other: it names each rank that does,
// its action, and for what it waits.
Timeline simulate(const Pipeline& pipeline, const std::vector<Schedule>& schedules, const ActionTimes& times,
                  Sends sends = Sends::free);

}  // namespace weft
