// A step that computes nothing: the very same layer code, on a backend and arenas that only count.
#pragma once
#include "weft/ops/dry/dry_backend.h"
#include "weft/plan/stage_links.h"

namespace weft {

struct DryChunk {
  Arena till_dgrad{"till dgrad"}, till_wgrad{"till wgrad"}, between{"between"};
};
// Their peaks are what a step needs.
struct DryArenas {
  Arena scratch{"scratch"}, replay{"replay"}, handover{"handover"};
  std::vector<DryChunk> chunks;
};

// The micro-batches of a step, then the update. Of many only the first and the last are run (the first overwrites
// gradients, the last adds and hands them over), for those between are like the first. `traffic` is what the state's
// mesh adds to: it ends as that of the whole step. Returns the arithmetic of the update.
double run_dry(TrainingState& state, const StepSpec& step, const Optimizer& optimizer, DryBackend& backend,
               DryArenas& arenas, Traffic& traffic);

// Every sequence of a micro-batch is one document.
std::vector<AttentionSpan> whole_sequences(const StepSpec& step);

}  // namespace weft
