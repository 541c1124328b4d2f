// From a recipe to the plain values of a run: model, step, optimizer, learning rate. Touches no data and no device.
#pragma once
#include <memory>

#include "weft/models/hf_config.h"
#include "weft/optim/loss_scale.h"
#include "weft/optim/lr_schedule.h"
#include "weft/plan/layout.h"
#include "weft/plan/memory_plan.h"
#include "weft/plan/recompute_choice.h"
#include "weft/recipe/recipe.h"

namespace weft {

struct RunPlan {
  HfConfig config;  // of the model's folder
  ModelSpec model;  // of that config, with the recipe's dropout
  StepSpec step;
  std::unique_ptr<Optimizer> optimizer;
  LrSchedule lr;         // of a recipe by epochs only once it is known how many steps these are: lr_schedule_of
  LossScale loss_scale;  // as it is at first
  MemoryPlan memory;
  RecomputeChoice recompute = {};  // of parallel.recompute = "budget", once it is settled
};

// Reads config.json of the recipe's model folder and measures the step. Throws ConfigError, FileError or
// PlacementError, before any data is touched.
RunPlan plan_run(const Recipe& recipe, const WorkspaceModel& workspace, int rank = 0);
// The same for a model that is not (as it is there) in that folder; so for the teacher, if it has one, else that is
// read.
RunPlan plan_run(const Recipe& recipe, HfConfig config, const WorkspaceModel& workspace, int rank = 0);

// Whether run.dir has a run: its train.micro_batch_size may not change any more.
bool has_begun(const Recipe& recipe);

// The schedule of a recipe whose length is in steps (train.train_iters).
LrSchedule lr_schedule_of(const Recipe& recipe);

// All of it but `memory` and `recompute`. The step of another rank of the same run has what was stored of its teacher,
// and `recompute` once that is settled (plan/recompute_budget.h).
RunPlan prepare_run(const Recipe& recipe, int rank);
RunPlan prepare_run(const Recipe& recipe, HfConfig config, int rank);
StepSpec step_of(const Recipe& recipe, const ModelSpec& model, int rank, const HfConfig* teacher = nullptr);
StepSpec step_of(const Recipe& recipe, const RunPlan& run, int rank);

}  // namespace weft
