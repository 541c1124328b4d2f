// The loss of held-out text.
#pragma once
#include "weft/data/eval_windows.h"
#include "weft/train/executor.h"
#include "weft/train/metrics_log.h"

namespace weft {

// Mean loss over the counted targets of the first `max_batches` micro-batches of windows (0: of all), by the weights as
// they are; `step` goes into the record. Windows must be of the step's seq_length. Blocks.
EvalRecord evaluate_loss(const EvalWindows& windows, Executor& executor, const StepSpec& spec, int64_t step,
                         int64_t max_batches);

}  // namespace weft
