// A reference whose log-probabilities are stored beside the rows (objective.precompute_ref_log_probs): the files, which
// are made before the run begins, and what a step reads of them.
#pragma once
#include <memory>
#include <optional>

#include "weft/data/reference_logps.h"
#include "weft/data/row_order.h"
#include "weft/plan/run_plan.h"
#include "weft/step/executor.h"
#include "weft/train/batch_loader.h"
#include "weft/train/machine.h"
#include "weft/train/run_data.h"

namespace weft {

// Of rows; and, for an objective that scores others, of the other sequences of the batches that a run makes of them.
struct StoredLogps {
  std::shared_ptr<const ReferenceLogps> rows = {}, others = {};
};
// Of the training rows and of the held-out ones; null where the recipe stores nothing, or has none.
struct RunReferences {
  StoredLogps train = {}, valid = {};
};

// Throws FileError where such a file could not be written beside the rows. Before anything is made for the run.
void require_reference_folders(const Recipe& recipe);

// What the reference reads: all completions of all rows; or the other sequences of the first samples of their order.
struct ReferenceTexts {
  const RowOrder& order;
  int64_t others = 0;  // of so many samples; 0: the rows
};

// Hash of all that the reference makes of these depends on: its weights and config, the rows, how it computes; and of
// other sequences the order and the batches by which prompts and completions meet.
std::string reference_key(const Recipe& recipe, const RunPlan& plan, const ReferenceTexts& texts);

// Opens the files, and makes those that are not there: the reference alone reads every row once, on the recipe's
// ranks; its memory is given back. Throws FileError, NumericsError. Collective. Blocks.
RunReferences prepare_references(const Recipe& recipe, const RunData& data, const Machine& machine,
                                 const ProcessMesh& mesh, int terminal_fd);

// What the steps of a rank read of such files. Borrows all it is made of.
class StoredReference {
 public:
  struct Parts {
    const StoredLogps& files;
    const RowOrder& rows;
    const BatchLoader& batches;
    const StepSpec& step;
  };
  explicit StoredReference(const Parts& parts) : of_(parts) {}
  ReadReference of_batch(int64_t batch) const;
  ReadReference of_others(int64_t batch) const;  // empty where the step scores none

 private:
  void read(const ReferenceLogps& file, int64_t first_sample, bool others, std::span<double> losses) const;
  const Parts of_;
};
// None where there is no file.
std::optional<StoredReference> stored_reference_of(const StoredLogps& files, const TrainingSamples& rows,
                                                   const BatchLoader& batches, const StepSpec& step);

}  // namespace weft
