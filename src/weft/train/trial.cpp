#include "weft/train/trial.h"

#include <cmath>

#include "weft/base/rng.h"
#include "weft/models/hf_weights.h"
#include "weft/models/init.h"
#include "weft/train/batch_loader.h"

namespace weft {
namespace {

class TrialRank {
 public:
  TrialRank(const Trial& trial, const Machine& machine, const ProcessMesh& mesh, const TrialHooks& hooks)
      : trial_(trial),
        hooks_(hooks),
        rank_(plan_run(trial.recipe, trial.config, *machine.workspace_model, mesh.world->rank()), machine, mesh,
              hooks.decorate),
        batches_(trial.data, {.seq_length = trial.recipe.train.seq_length,
                              .micro_batch_size = trial.recipe.train.micro_batch_size,
                              .order = rank_.plan.step.order}),
        loss_scale_(rank_.plan.loss_scale) {
    if (trial.recipe.model.init == "pretrained")
      load_hf_weights(trial.recipe.model.path, rank_.plan.model, rank_.state.params);
    else
      init_weights(rank_.state.params, seed(), machine.threads);
    rank_.state.params.masters_changed(rank_.backend);
  }

  void step(int64_t step) {
    TrialMoment now = run(step);
    if (recorder_) hooks_.ops->add(recorder_->take());
    recorder_.reset();
    if (hooks_.see) hooks_.see(now);
    update_all(rank_.backend, *rank_.plan.optimizer, rank_.state.params, rank_.executor.scratch(),
               {.lr = rank_.plan.lr.at(step),
                .grad_scale = clip_scale(now.grad_norm, trial_.recipe.optimizer.clip_grad) / now.loss_scale,
                .step = step + 1});
    loss_scale_.count_good();
    now.updated = true;
    if (hooks_.see) hooks_.see(now);
  }

 private:
  uint64_t seed() const { return uint64_t(trial_.recipe.train.seed); }

  // Forward and backward of a step; again where its gradients overflow.
  TrialMoment run(int64_t step) {
    for (;;) {
      TrialMoment now = run_once(step);
      const bool finite = std::isfinite(now.loss) && std::isfinite(now.grad_norm);  // the same on every rank
      if (finite || !loss_scale_.fall()) return now;
    }
  }

  TrialMoment run_once(int64_t step) {
    const double counted = double(std::max<int64_t>(1, batches_.counted(step)));
    const double scale = loss_scale_.state.scale;
    const LoadMicroBatch load = [&](MicroBatch& b) { batches_.load(step, b); };
    Executor::StepInput input{.load = load,
                              .loss_scale = scale / counted,
                              .dropout_key = rng_key(rng_key(seed(), "dropout"), uint64_t(step))};
    const double loss = run_recorded(step, input) / counted;
    const double norm = rank_.state.norm->wait_measure(rank_.backend) / scale;
    return {.step = step,
            .updated = false,
            .loss = loss,
            .grad_norm = norm,
            .loss_scale = scale,
            .params = rank_.state.params};
  }

  double run_recorded(int64_t step, Executor::StepInput& input) {
    if (hooks_.ops == nullptr || hooks_.ops_step != step) return rank_.executor.run(input);
    recorder_.emplace(rank_.backend, rank_.state.params.memory());
    input.begins = [&](const Action& action) {
      recorder_->begin(rank_.plan.step.order.global_of(action.micro_batch), action.what == Do::forward);
    };
    return rank_.executor.run_on(*recorder_, input);
  }

  const Trial& trial_;
  const TrialHooks& hooks_;
  RankRun rank_;
  BatchLoader batches_;
  LossScale loss_scale_;
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
