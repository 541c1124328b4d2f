#include "weft/train/trial.h"

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
                              .order = rank_.plan.step.order}) {
    if (trial.recipe.model.init == "pretrained")
      load_hf_weights(trial.recipe.model.path, rank_.plan.model, rank_.state.params);
    else
      init_weights(rank_.state.params, seed(), machine.threads);
    rank_.state.params.masters_changed(rank_.backend);
  }

  void step(int64_t step) {
    const double counted = double(std::max<int64_t>(1, batches_.counted(step)));
    const double loss = run(step, counted) / counted;
    const double norm = rank_.state.norm->wait_measure(rank_.backend);
    TrialMoment now{.step = step, .updated = false, .loss = loss, .grad_norm = norm, .params = rank_.state.params};
    if (hooks_.see) hooks_.see(now);
    update_all(rank_.backend, *rank_.plan.optimizer, rank_.state.params, rank_.executor.scratch(),
               {.lr = rank_.plan.lr.at(step),
                .grad_scale = clip_scale(norm, trial_.recipe.optimizer.clip_grad),
                .step = step + 1});
    rank_.backend.wait_all();
    now.updated = true;
    if (hooks_.see) hooks_.see(now);
  }

 private:
  uint64_t seed() const { return uint64_t(trial_.recipe.train.seed); }

  double run(int64_t step, double counted) {
    const LoadMicroBatch load = [&](MicroBatch& b) { batches_.load(step, b); };
    Executor::StepInput input{
        .load = load, .loss_scale = 1 / counted, .dropout_key = rng_key(rng_key(seed(), "dropout"), uint64_t(step))};
    if (hooks_.ops == nullptr || hooks_.ops_step != step) return rank_.executor.run(input);
    OpRecorder recorder(rank_.backend);
    input.begins = [&](const Action& action) {
      recorder.begin(rank_.plan.step.order.global_of(action.micro_batch), action.what == Do::forward);
    };
    const double loss = rank_.executor.run_on(recorder, input);
    hooks_.ops->add(recorder.take());
    return loss;
  }

  const Trial& trial_;
  const TrialHooks& hooks_;
  RankRun rank_;
  BatchLoader batches_;
};

}  // namespace

void run_trial(const Trial& trial, const Machine& machine, const TrialHooks& hooks) {
  hooks.run(mesh_sizes_of(trial.recipe), [&](const ProcessMesh& mesh) {
    TrialRank rank(trial, machine, mesh, hooks);
    for (int64_t step = 0; step < trial.steps; ++step) rank.step(step);
  });
}

}  // namespace weft
