#include "weft/plan/dry_step.h"

#include "weft/step/text_passes.h"

namespace weft {

DryStep::DryStep(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                 const WorkspaceModel& workspace)
    : step_(step),
      optimizer_(optimizer),
      backend_(workspace),
      state_(model, step_, optimizer, persistent_, dry_mesh(step.mesh, step.rank, &traffic_)),
      executor_(state_, step_, {backend_, state_.params.mesh()}, traffic_) {}

double DryStep::run(const Watch& watch) {
  Backend& backend = watch.backend != nullptr ? *watch.backend : backend_;
  const std::vector<AttentionSpan> spans = whole_sequences(step_);
  const LoadMicroBatch load = [&](MicroBatch& b) { b.spans = spans; };
  executor_.run_on(backend,
                   {.load = load, .loss_scale = 1, .dropout_key = 1, .begins = watch.begins, .ends = watch.ends});
  state_.norm->wait_measure(backend);
  const double flops = backend_.flops();
  const auto update = [&] {
    update_all(backend, optimizer_, state_.params, executor_.scratch(), {.lr = 0, .grad_scale = 1, .step = 1});
  };
  if (state_.weight_norms)
    state_.weight_norms->wait_update(backend, executor_.scratch(), true, update);
  else
    update();
  const Traffic sent = traffic_;
  if (step_.evaluates) executor_.evaluate(load);
  if (step_.writes > 0) {
    Arena memory("texts written");
    TextPasses(state_.model.spec(), step_,
               {.weights = state_.params, .backend = backend_, .mesh = state_.params.mesh(), .memory = memory})
        .run_dry();
    writing_ = memory.peak();
  }
  traffic_ = sent;
  return flops;
}

std::vector<AttentionSpan> whole_sequences(const StepSpec& step) {
  std::vector<AttentionSpan> spans;
  for (int64_t i = 0; i < step.micro_batch_size; ++i) {
    const int64_t row = i * step.seq_length;
    spans.push_back({.q_row = row, .q_count = step.seq_length, .k_row = row, .k_count = step.seq_length});
  }
  return spans;
}

}  // namespace weft
