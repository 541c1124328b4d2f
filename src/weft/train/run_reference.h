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

// Of the training rows and of the held-out ones; null where the recipe stores nothing, or has none.
struct RunReferences {
  std::shared_ptr<const ReferenceLogps> train = {}, valid = {};
};

// Throws FileError where such a file could not be written beside the rows. Before anything is made for the run.
void require_reference_folders(const Recipe& recipe);

// Hash of all that the reference makes of these rows depends on: its weights and config, the rows, and how it computes.
std::string reference_key(const Recipe& recipe, const RunPlan& plan, const IdRows& rows);

// Opens the files, and makes those that are not there: the reference alone reads every row once, on the recipe's
// ranks; its memory is given back. Throws FileError, NumericsError. Collective. Blocks.
RunReferences prepare_references(const Recipe& recipe, const RunData& data, const Machine& machine,
                                 const ProcessMesh& mesh, int terminal_fd);

// What the steps of a rank read of such a file. Borrows all it is made of.
class StoredReference {
 public:
  struct Parts {
    const ReferenceLogps& file;
    const RowOrder& rows;
    const BatchLoader& batches;
    const StepSpec& step;
  };
  explicit StoredReference(const Parts& parts) : of_(parts) {}
  ReadReference of_batch(int64_t batch) const;

 private:
  void read(int64_t batch, int64_t micro_batch, std::span<double> losses) const;
  const Parts of_;
};
// None where there is no file.
std::optional<StoredReference> stored_reference_of(const ReferenceLogps* file, const TrainingSamples& rows,
                                                   const BatchLoader& batches, const StepSpec& step);

}  // namespace weft
