// The loss of held-out text.
#pragma once
#include <optional>

#include "weft/data/eval_windows.h"
#include "weft/records/metrics_log.h"
#include "weft/step/executor.h"

namespace weft {

// The losses of the tokens of one micro-batch that the argument fills.
using ScoreMicroBatch = std::function<Tensor(const LoadMicroBatch&)>;

struct EvalRequest {
  const EvalWindows& windows;  // of the step's seq_length
  const StepSpec& step_spec;
  const Memory& memory;                     // where the losses of tokens lie
  int64_t step = 0;                         // goes into the record
  int64_t max_batches = 0;                  // micro-batches of windows to score; 0: all
  Communicator& ranks;                      // that share the work: each of dp scores every size-th micro-batch
  Communicator& stages;                     // of the pipeline, one of which has the losses
  std::function<bool()> stopped = nullptr;  // asked between micro-batches, the same answer on every rank; none: never
};
// Mean loss over the counted targets, the same on every rank and for any number of them; none where it was
// stopped. Blocks.
std::optional<EvalRecord> evaluate_loss(const EvalRequest& request, const ScoreMicroBatch& score);

}  // namespace weft
