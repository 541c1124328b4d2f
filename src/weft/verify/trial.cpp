#include "weft/verify/trial.h"

#include "weft/train/first_weights.h"
#include "weft/train/objectives.h"
#include "weft/train/training_step.h"

namespace weft {
namespace {

class TrialRank {
 public:
  TrialRank(const Trial& trial, const Machine& machine, const ProcessMesh& mesh, const TrialHooks& hooks)
      : hooks_(hooks),
        rank_(plan_run(trial.recipe, trial.config, *machine.workspace_model, mesh.world->rank()), machine, mesh,
              hooks.decorate),
        batches_(trial.data, {.seq_length = trial.recipe.train.seq_length,
                              .micro_batch_size = rank_.plan.step.micro_batch_size,
                              .order = rank_.plan.step.order,
                              .documents_alike = trial.recipe.train.loss_average == LossAverage::document}),
        objective_(objective_of(trial.recipe, trial.data)),
        loss_scale_(rank_.plan.loss_scale),
        step_run_({trial.recipe, rank_, batches_, loss_scale_, *objective_}) {
    begin_weights(trial.recipe, rank_.plan.model, rank_.state.params, rank_.backend, machine.threads);
    start_frozen(trial.recipe, rank_, machine.threads);
  }

  // The step of that batch; again where its gradients overflow, with the loss scale that this leaves.
  void step(int64_t batch) {
    for (;;) {
      const Result result = run(batch);
      if (result.outcome == Outcome::skipped && loss_scale_.kind == LossScale::Kind::dynamic) continue;
      if (recorder_) hooks_.ops->add(recorder_->take());
      recorder_.reset();
      if (!hooks_.see) return;
      if (result.outcome != Outcome::updated) hooks_.see(moment(batch, result, false));
      return hooks_.see(moment(batch, result, true));
    }
  }

 private:
  using Outcome = TrainingStep::Outcome;
  using Result = TrainingStep::Result;

  Result run(int64_t batch) {
    TrainingStep::Watch watch{.before_end = [&](const Result& so_far) {
      if (hooks_.see && so_far.outcome == Outcome::updated) hooks_.see(moment(batch, so_far, false));
    }};
    if (hooks_.ops != nullptr && hooks_.ops_step == batch) {
      recorder_.emplace(rank_.backend, rank_.state.params);
      watch.backend = &*recorder_;
      watch.begins = [&](const Action* action, const Instruction&) {
        if (action == nullptr) return;
        recorder_->begin(rank_.plan.step.order.global_of(action->micro_batch), action->what == Do::forward);
      };
    }
    return step_run_.run(batch + loss_scale_.state.skipped_steps, batch, watch);
  }

  TrialMoment moment(int64_t step, const Result& result, bool updated) const {
    return {.step = step,
            .updated = updated,
            .loss = result.loss,
            .grad_norm = result.grad_norm,
            .loss_scale = result.loss_scale,
            .params = rank_.state.params,
            .optimizer = *rank_.plan.optimizer};
  }

  const TrialHooks& hooks_;
  RankRun rank_;
  BatchLoader batches_;
  const std::unique_ptr<const Objective> objective_;
  LossScale loss_scale_;
  const TrainingStep step_run_;
  std::optional<OpRecorder> recorder_;  // of the step whose operations are asked for
};

}  // namespace

void run_trial(const Trial& trial, const Machine& machine, const TrialHooks& hooks) {
  hooks.run(mesh_sizes_of(trial.recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    TrialRank rank(trial, machine.of_rank(mesh.world->rank()), mesh, hooks);
    for (int64_t step = 0; step < trial.steps; ++step) rank.step(step);
  });
}

}  // namespace weft
