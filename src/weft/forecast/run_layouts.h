// In which layouts a run was: weft supervise changes them as ranks come and go (docs/operations.md).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// Steps that follow each other in one layout.
struct RunStretch {
  int64_t first_step = 1;
  int64_t ranks = 0;
  std::string layout = {};  // as the event says it; empty: the recipe's own, in which the run began
  bool operator==(const RunStretch&) const = default;
};
// Of the text of an events.jsonl: none without an attempt in it. Of steps that were lost and trained again the later
// layout counts. Lines that are no events are passed over.
std::vector<RunStretch> stretches_in(const std::string& events);

// What the records of a stretch say: means of all of its steps but the first, which warms up.
struct StretchMeans {
  RunStretch stretch;
  int64_t last_step = 0, counted = 0;
  double step_s = 0, tokens_per_s = 0;
};

}  // namespace weft
