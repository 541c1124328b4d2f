#include "weft/plan/memory_plan.h"

#include <algorithm>

#include "weft/ops/dry/dry_backend.h"

namespace weft {
namespace {

constexpr double kMiB = 1 << 20;

// Every sequence of a micro-batch is one document.
std::vector<AttentionSpan> whole_sequences(const StepSpec& step) {
  std::vector<AttentionSpan> spans;
  for (int64_t i = 0; i < step.micro_batch_size; ++i) {
    const int64_t row = i * step.seq_length;
    spans.push_back({.q_row = row, .q_count = step.seq_length, .k_row = row, .k_count = step.seq_length});
  }
  return spans;
}

bool splits_backward(const Schedule& schedule) {
  return std::any_of(schedule.begin(), schedule.end(), [](const Action& a) { return a.what == Do::dgrad; });
}

ProcessMesh mesh_of(const StepSpec& step) { return dry_mesh(step.mesh, step.rank); }

struct DryArenas {
  Arena scratch{"scratch"}, replay{"replay"}, till_dgrad{"till dgrad"}, till_wgrad{"till wgrad"}, between{"between"};
  void rewind() {
    for (Arena* a : {&scratch, &replay, &till_dgrad, &till_wgrad, &between}) a->rewind();
  }
};

// Two micro-batches if there are two (the first overwrites gradients, the second adds), then the update.
void run_dry(const ModelSpec& model, StepSpec step, const Optimizer& optimizer, DryBackend& backend, DryArenas& a) {
  step.order.num_micro_batches = std::min<int64_t>(step.order.num_micro_batches, 2);
  PersistentArenas persistent;
  const ProcessMesh mesh = mesh_of(step);
  TrainingState state(model, step, optimizer, persistent, mesh);
  const auto spans = whole_sequences(step);
  auto saved = state.model.make_saved();
  for (int64_t mb = 0; mb < step.order.num_micro_batches; ++mb) {
    a.rewind();
    MicroBatch batch = alloc_micro_batch(a.till_wgrad, step);
    batch.index = mb;
    batch.spans = spans;
    batch.loss = state.losses.slice_rows(step.order.global_of(mb), 1);
    Pass p{backend, mesh, step.precision, batch, &a.scratch, &a.till_dgrad, &a.till_wgrad, &a.between, &a.replay, 1};
    state.model.forward(p, saved);
    if (splits_backward(step.schedule)) {
      state.model.dgrad(p, saved);
      state.model.wgrad(p, saved);
    } else {
      state.model.backward(p, saved);
    }
  }
  state.params.finish_step(backend);
  state.norm->wait_measure(backend);
  update_all(backend, optimizer, state.params, {.lr = 0, .grad_scale = 1, .step = 1});
}

// run_dry counts at most two micro-batches.
double repeats(const StepSpec& step) {
  return double(step.order.num_micro_batches) / double(std::min<int64_t>(step.order.num_micro_batches, 2));
}

// The same step with nothing computed again.
double model_flops(const ModelSpec& model, StepSpec step, const Optimizer& optimizer, const WorkspaceModel& workspace) {
  step.model.layers.keep_activations = true;
  step.model.recompute_blocks = false;
  DryBackend backend(workspace);
  DryArenas arenas;
  run_dry(model, step, optimizer, backend, arenas);
  return backend.flops() * repeats(step);
}

void check_positions(const ModelSpec& model, const StepSpec& step) {
  if (model.learned_positions && step.seq_length > model.max_positions) {
    throw ConfigError(fmt::format("train.seq_length = {}: the model has a table of {} positions; use at most that",
                                  step.seq_length, model.max_positions));
  }
}

}  // namespace

MemoryPlan measure_forward(const ModelSpec& model, const StepSpec& step, const WorkspaceModel& workspace) {
  check_positions(model, step);
  const ProcessMesh mesh = mesh_of(step);
  ParamStore params(step.precision, step.order, mesh);
  Transformer transformer(params, model, step.model);
  PersistentArenas persistent;
  params.allocate_values(persistent.params);
  transformer.allocate_constants(persistent.constants, step.precision);
  const auto spans = whole_sequences(step);
  DryBackend backend(workspace);
  Arena scratch("evaluation");
  MicroBatch batch = alloc_micro_batch(scratch, step);
  batch.spans = spans;
  Tensor nll = scratch.alloc(step.precision.stat, {step.micro_batch_tokens()}, transformer.loss_place());
  Pass p{backend, mesh, step.precision, batch, &scratch, &scratch, &scratch, &scratch, &scratch};
  transformer.evaluate(p, nll);
  MemoryPlan plan;
  plan.persistent = persistent.peak();
  plan.evaluation = scratch.peak();
  plan.workspace = backend.workspace_bytes();
  plan.num_params = params.num_elements();
  plan.model_flops = plan.hardware_flops = backend.flops();
  return plan;
}

MemoryPlan measure(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                   const WorkspaceModel& workspace) {
  check_positions(model, step);
  MemoryPlan plan;
  PersistentArenas persistent;
  TrainingState state(model, step, optimizer, persistent, mesh_of(step));
  plan.persistent = persistent.peak();
  plan.num_params = state.params.num_elements();
  DryBackend backend(workspace);
  DryArenas arenas;
  run_dry(model, step, optimizer, backend, arenas);
  plan.slots = liveness(step.schedule);
  plan.till_dgrad = arenas.till_dgrad.peak();
  plan.till_wgrad = arenas.till_wgrad.peak();
  plan.dgrad_till_wgrad = arenas.between.peak();
  plan.replay = arenas.replay.peak();
  plan.scratch = arenas.scratch.peak();
  plan.workspace = backend.workspace_bytes();
  plan.hardware_flops = backend.flops() * repeats(step);
  plan.model_flops = model_flops(model, step, optimizer, workspace);
  if (step.evaluates) {
    const MemoryPlan forward = measure_forward(model, step, workspace);
    plan.evaluation = forward.evaluation;
    plan.workspace = std::max(plan.workspace, forward.workspace);
  }
  return plan;
}

std::vector<MemoryPlan::Row> MemoryPlan::rows() const {
  return {{"parameters", "masters and compute copies", 1, persistent.params},
          {"gradients", "sums over micro-batches", 1, persistent.grads},
          {"optimizer state", "moments", 1, persistent.states},
          {"constants", "table of rotations", 1, persistent.constants},
          {"losses and norms", "", 1, persistent.records},
          {"activations till dgrad", "forward .. dgrad, per micro-batch alive", slots.till_dgrad, till_dgrad},
          {"activations till wgrad", "forward .. wgrad, per micro-batch alive", slots.till_wgrad, till_wgrad},
          {"gradients till wgrad", "dgrad .. wgrad, per micro-batch alive", slots.dgrad_till_wgrad, dgrad_till_wgrad},
          {"replay", "a layer computed again", 1, replay},
          {"scratch", "temporaries of layers", 1, scratch},
          {"workspace", "temporaries of kernels", 1, workspace},
          {"evaluation", "loss without training", 1, evaluation}};
}

int64_t MemoryPlan::total_bytes() const {
  int64_t total = 0;
  for (const Row& row : rows()) total += row.bytes();
  return total;
}

std::string to_string(const MemoryPlan& plan) {
  std::string text = fmt::format("{:<24} {:<42} {:>6} {:>14} {:>14}\n", "memory", "", "count", "MiB each", "MiB");
  for (const auto& row : plan.rows()) {
    text += fmt::format("{:<24} {:<42} {:>6} {:>14.2f} {:>14.2f}\n", row.name, row.meaning, row.count,
                        double(row.bytes_each) / kMiB, double(row.bytes()) / kMiB);
  }
  return text +
         fmt::format("{:<24} {:<42} {:>6} {:>14} {:>14.2f}\n", "total", "", "", "", double(plan.total_bytes()) / kMiB);
}

}  // namespace weft
