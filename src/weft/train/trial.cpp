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
        mesh_(mesh),
        plan_(plan_run(trial.recipe, trial.config, *machine.workspace_model, mesh.world->rank())),
        arenas_(plan_.memory.persistent),
        state_(plan_.model, plan_.step, *plan_.optimizer, arenas_, mesh_),
        workspace_("workspace", plan_.memory.workspace),
        kernels_(machine.make_backend(workspace_)),
        decorated_(hooks.decorate ? hooks.decorate(*kernels_, mesh_) : nullptr),
        backend_(decorated_ ? *decorated_ : *kernels_),
        executor_(state_, plan_.step, plan_.memory, {backend_, mesh_}),
        batches_(trial.data, {.seq_length = trial.recipe.train.seq_length,
                              .micro_batch_size = trial.recipe.train.micro_batch_size,
                              .order = plan_.step.order}) {
    if (trial.recipe.model.init == "pretrained")
      load_hf_weights(trial.recipe.model.path, plan_.model, state_.params);
    else
      init_weights(state_.params, seed(), machine.threads);
    state_.params.masters_changed(backend_);
  }

  void step(int64_t step) {
    const double counted = double(std::max<int64_t>(1, batches_.counted(step)));
    const double loss = run(step, counted) / counted;
    const double norm = state_.norm->wait_measure(backend_);
    TrialMoment now{.step = step, .updated = false, .loss = loss, .grad_norm = norm, .params = state_.params};
    if (hooks_.see) hooks_.see(now);
    update_all(
        backend_, *plan_.optimizer, state_.params, executor_.scratch(),
        {.lr = plan_.lr.at(step), .grad_scale = clip_scale(norm, trial_.recipe.optimizer.clip_grad), .step = step + 1});
    backend_.wait_all();
    now.updated = true;
    if (hooks_.see) hooks_.see(now);
  }

 private:
  uint64_t seed() const { return uint64_t(trial_.recipe.train.seed); }

  double run(int64_t step, double counted) {
    const LoadMicroBatch load = [&](MicroBatch& b) { batches_.load(step, b); };
    Executor::StepInput input{
        .load = load, .loss_scale = 1 / counted, .dropout_key = rng_key(rng_key(seed(), "dropout"), uint64_t(step))};
    if (hooks_.ops == nullptr || hooks_.ops_step != step) return executor_.run(input);
    OpRecorder recorder(backend_);
    input.begins = [&](const Action& action) {
      recorder.begin(plan_.step.order.global_of(action.micro_batch), action.what == Do::forward);
    };
    const double loss = executor_.run_on(recorder, input);
    hooks_.ops->add(recorder.take());
    return loss;
  }

  const Trial& trial_;
  const TrialHooks& hooks_;
  const ProcessMesh mesh_;
  const RunPlan plan_;
  PersistentArenas arenas_;
  TrainingState state_;
  Arena workspace_;
  std::unique_ptr<Backend> kernels_, decorated_;
  Backend& backend_;
  Executor executor_;
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
