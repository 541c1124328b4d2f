// Results without which a model is not exported.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

// Of --require: by the file of --results, which must be of the same weights, or what the model's run has scored in the
// step of its checkpoint (eval.tasks). Throws ConfigError, FileError; Error where a result is not as it is required.
void require_results(const ExportOptions& options);

}  // namespace weft
