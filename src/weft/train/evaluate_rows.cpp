#include "weft/train/evaluate_rows.h"

#include <vector>

#include "weft/train/objectives.h"

namespace weft {

std::optional<EvalRecord> evaluate_rows(const RowsToEvaluate& r, Executor& executor) {
  BatchLoader loader(r.rows, {.seq_length = r.recipe.train.seq_length,
                              .micro_batch_size = r.step_spec.micro_batch_size,
                              .order = r.step_spec.order});
  const auto objective = objective_of(r.recipe, r.rows);
  const auto stored = stored_reference_of(r.reference, r.rows, loader, r.step_spec);
  const int64_t batches = r.rows.samples_per_epoch() / r.recipe.train.global_batch_size;
  EvalRecord record{.step = r.step};
  std::vector<std::vector<double>> sums;  // [batch]
  for (int64_t b = 0; b < batches; ++b) {
    if (r.stopped()) return {};
    const LoadMicroBatch load = [&](MicroBatch& micro_batch) { loader.load(b, micro_batch); };
    const LoadMicroBatch others = [&](MicroBatch& micro_batch) { loader.load_others(b, micro_batch); };
    const Objective::Sums of_batch =
        executor.measure({.load = load,
                          .loss_scale = 1,
                          .dropout_key = 0,
                          .objective = *objective,
                          .batch = b,
                          .others = &others,
                          .reference = stored ? stored->of_batch(b) : ReadReference(),
                          .reference_of_others = stored ? stored->of_others(b) : ReadReference()});
    record.loss += objective->loss(0, of_batch) / double(batches);
    record.tokens += loader.counted(b).targets;
    sums.emplace_back(of_batch.begin(), of_batch.end());
  }
  record.terms = objective->terms_of_all(sums);
  return record;
}

}  // namespace weft
