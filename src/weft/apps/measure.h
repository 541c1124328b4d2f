// The loss of a model on files, as `weft eval` measures it.
#pragma once
#include <cstdint>
#include <functional>

#include "weft/apps/commands.h"
#include "weft/apps/eval_ranks.h"
#include "weft/data/training_samples.h"
#include "weft/records/metrics_log.h"

namespace weft {

// Called once, by the first rank, with what was measured and the tokens of a window.
using TakeMeasured = std::function<void(const EvalRecord&, int64_t window)>;

// Returns an exit status. Throws as run_eval.
int measure(const EvalOptions& options, const TakeMeasured& take);

// What the options name as data, as the model reads it. Throws ConfigError, FileError.
DataSpec data_to_measure(const EvalOptions& options, const Measured& measured);

}  // namespace weft
