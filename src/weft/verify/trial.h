// A few steps of a recipe's training, for inspection: no run folder, no records, no checkpoints.
#pragma once
#include <functional>

#include "weft/data/training_samples.h"
#include "weft/train/rank_run.h"
#include "weft/train/train_on_ranks.h"
#include "weft/verify/op_log.h"

namespace weft {

struct Trial {
  Recipe recipe;
  HfConfig config;  // of the model, which need not be that of the recipe's folder
  const TrainingSamples& data;
  int64_t steps = 1;
};

// A rank's state: called once after backward and once after the update of a step.
struct TrialMoment {
  int64_t step;  // from 0
  bool updated;
  double loss, grad_norm;
  double loss_scale;         // that gradients in `params` are multiplied with; grad_norm is not
  const ParamStore& params;  // gradients are whole sums until the update; masters and states are of before or after it
  const Optimizer& optimizer;
};

struct TrialHooks {
  std::function<void(const TrialMoment&)> see = {};  // on every rank, at the same time
  RunRanks run = run_on_threads;                     // all of this process
  DecorateBackend decorate = {};
  OpLog* ops = nullptr;  // receives the operations of step `ops_step`
  int64_t ops_step = 0;
};

// Trains by Trainer's own steps (training_step.h), from the recipe's first weights on; but the batch of a step that is
// skipped comes again, with the loss scale that this leaves, so that trials of one recipe have the same updates. Throws
// what the first rank to fail has thrown. Blocks.
void run_trial(const Trial& trial, const Machine& machine, const TrialHooks& hooks);

}  // namespace weft
