// Where a schedule repeats itself. Pure functions.
#pragma once
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

// `times` times the same `length` actions, from action `first` on; each time on micro-batches that are higher by
// `shift` than the time before.
struct Loop {
  size_t first, length;
  int64_t times, shift;
  bool operator==(const Loop&) const = default;
};
// The whole schedule as loops, one after the other; what does not repeat often, as loops of one time. Of every schedule
// here, as many loops as do not depend on the number of micro-batches.
std::vector<Loop> loops_of(const Schedule& schedule);

}  // namespace weft
