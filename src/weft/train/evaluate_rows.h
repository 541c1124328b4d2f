// The loss of held-out rows: pairs of completions, judged examples.
#pragma once
#include <functional>
#include <optional>

#include "weft/data/training_samples.h"
#include "weft/recipe/recipe.h"
#include "weft/records/metrics_log.h"
#include "weft/step/executor.h"
#include "weft/train/batch_loader.h"
#include "weft/train/run_reference.h"

namespace weft {

struct RowsToEvaluate {
  const Recipe& recipe;
  const TrainingSamples& rows;
  const StepSpec& step_spec;
  const StoredLogps& reference;   // of the rows, where the step has none in memory
  int64_t step = 0;               // goes into the record
  std::function<bool()> stopped;  // asked between batches, the same answer on every rank
};
// Loss and terms of batches as large as a step's, as the objective means them (Objective::terms_of_all); rows that are
// no whole batch are left out. The same on every rank; none where it was stopped. Collective. Blocks.
std::optional<EvalRecord> evaluate_rows(const RowsToEvaluate& request, Executor& executor);

}  // namespace weft
