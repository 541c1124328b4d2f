// One step of training, as Trainer does it and `weft verify` looks at it: forward and backward of a batch, the norm of
// its gradients, and the update of the weights by them, clipped and without the loss scale.
#pragma once
#include <functional>

#include "weft/nn/router_records.h"
#include "weft/optim/loss_scale.h"
#include "weft/optim/spike_rule.h"
#include "weft/recipe/recipe.h"
#include "weft/train/batch_loader.h"
#include "weft/train/rank_run.h"
#include "weft/train/run_reference.h"

namespace weft {

// Borrows all it is made of. Every rank of the mesh runs the same steps.
class TrainingStep {
 public:
  struct Parts {
    const Recipe& recipe;
    RankRun& rank;
    BatchLoader& batches;
    LossScale& loss_scale;  // counts on
    const Objective& objective = kNextToken;
    int64_t lr_first_step = 0;  // from which the recipe's learning rate counts, if a phase has one of its own
    const StoredReference* reference = nullptr;  // where the step reads what is stored of one
    int64_t first_step = 0;                      // of the phase's span
    int64_t older = 0;                   // by so many steps the optimizer's averages are older than the run (PhaseSpan)
    const SpikeWatch* spikes = nullptr;  // by which a step is judged, and whose skipped steps count; null: none was
  };
  explicit TrainingStep(const Parts& parts)
      : recipe_(parts.recipe),
        rank_(parts.rank),
        batches_(parts.batches),
        loss_scale_(parts.loss_scale),
        objective_(parts.objective),
        lr_first_step_(parts.lr_first_step),
        reference_(parts.reference),
        first_step_(parts.first_step),
        older_(parts.older),
        spikes_(parts.spikes) {}

  enum class Outcome : uint8_t {
    updated,
    skipped,  // loss or norm is not finite: weights and optimizer state stay, the loss scale has counted it
    stuck,    // neither is finite, and no loss scale may fall: nothing has changed, and the step may run again
    spike     // the loss or the norm stands out of those before, and nothing has changed
  };
  struct Result {
    int64_t targets;         // that count in the batch
    double loss, grad_norm;  // the same on every rank; the norm without the loss scale
    double lr;
    double loss_scale;  // that the gradients have
    Outcome outcome;
    RouterReport routers = {};  // of a model with experts
    Objective::Terms terms = {};
    std::vector<PartSums> weights = {};  // WeightNorms', where they were measured
    double mtp_loss = 0;                 // of a model with multi-token prediction: the mean over tokens after targets
  };
  struct Watch {
    Backend* backend = nullptr;  // of forward and backward: a decorator of the rank's
    std::function<void(const Action*, const Instruction&)> begins = {};  // Executor::StepInput's
    std::function<void()> ends = {};                                     // likewise
    std::function<void(const Result&)> before_end = {};  // gradients are whole sums; not where the step is stuck
    bool measures_weights = false;
    bool again = false;  // the step was stuck, and runs for the second time
    // Which micro-batch of the global batch is computed in place of one of this rank's; none: its own.
    std::function<int64_t(int64_t micro_batch)> in_place_of = {};
  };
  // Step `step`, from 0, of which those that the states of loss_scale and spikes count have been skipped, by this batch
  // of the data, whose number is also dropout's. The numbers differ where a trial repeats a batch that was skipped, and
  // behind batches that a run has gone past. Blocks.
  Result run(int64_t step, int64_t batch, const Watch& watch) const;
  // Its forward and backward alone: the loss; gradients are multiplied by the loss scale. Blocks.
  double run_batch(int64_t batch, const Watch& watch) const;

 private:
  double run_batch(int64_t batch, const OpenSource::Counted& counted, const Watch& watch) const;
  Outcome wait_outcome(const Result& result) const;
  void update(int64_t step, int64_t updates, Result& result, const Watch& watch) const;

  const Recipe& recipe_;
  RankRun& rank_;
  BatchLoader& batches_;
  LossScale& loss_scale_;
  const Objective& objective_;
  const int64_t lr_first_step_;
  const StoredReference* const reference_;
  const int64_t first_step_, older_;
  const SpikeWatch* const spikes_;
};

}  // namespace weft
