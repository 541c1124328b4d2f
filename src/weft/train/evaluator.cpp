#include "weft/train/evaluator.h"

#include <algorithm>

#include "weft/models/hf_weights.h"

namespace weft {
namespace {

constexpr int64_t kDefaultWindow = 1024;

StepSpec forward_step(const ModelSpec& model, const Evaluator::Spec& spec) {
  const int64_t most = model.max_positions > 0 ? model.max_positions : kDefaultWindow;
  const int64_t seq = spec.seq_length > 0 ? spec.seq_length : std::min(most, kDefaultWindow);
  return {.precision = spec.precision,
          .model = {.layers = {}, .max_positions = seq},
          .seq_length = seq,
          .micro_batch_size = spec.micro_batch_size,
          .order = {},
          .schedule = {},
          .evaluates = true};
}

}  // namespace

Evaluator::Evaluator(const std::filesystem::path& folder, const Spec& spec)
    : config_(read_hf_config(folder)),
      machine_(spec.machine),
      step_(forward_step(config_.spec, spec)),
      plan_(measure_forward(config_.spec, step_, *machine_.workspace_model)),
      arenas_(plan_.persistent, machine_.memory),
      params_(step_.precision, {}, single_mesh(), WeightUse::frozen),
      model_(params_, config_.spec, step_.model),
      workspace_("workspace", plan_.workspace, machine_.memory),
      scratch_("evaluation", plan_.evaluation, machine_.memory),
      staging_(machine_.memory, step_.micro_batch_tokens()),
      backend_(machine_.make_backend(workspace_)),
      mesh_(single_mesh()) {
  params_.allocate_frozen(arenas_.params, arenas_.transit);
  model_.allocate_constants(arenas_.constants, step_.precision);
  read_hf_weights(folder, config_.spec, params_);
  params_.masters_changed(*backend_);
}

EvalRecord Evaluator::evaluate(const EvalWindows& windows, int64_t max_batches) {
  const ForwardOnly forward{model_, params_, step_, *backend_, mesh_, staging_};
  return *evaluate_loss({.windows = windows,
                         .step_spec = step_,
                         .memory = *machine_.memory,
                         .step = 0,
                         .max_batches = max_batches,
                         .ranks = *mesh_.dense.all,
                         .stages = *mesh_.pp},
                        [&](const LoadMicroBatch& load) { return forward.score(load, scratch_); });
}

}  // namespace weft
