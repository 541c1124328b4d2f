#include "weft/plan/memory_plan.h"

#include <algorithm>

#include "weft/plan/dry_step.h"

namespace weft {
namespace {

// Chunks elsewhere: nothing comes or goes.
class Nobody final : public Neighbours {
 public:
  void receive_stream(Tensor) override {}
  void send_stream(Tensor) override {}
  void receive_gradient(Tensor) override {}
  Tensor gradient_to_send() override { return {}; }
  void send_gradient(Tensor) override {}
};

// A rank's share of the arithmetic of a step before the update: the whole model on one rank, one micro-batch, over all
// ranks.
double flops_share(const ModelSpec& model, StepSpec step, const Optimizer& optimizer, const WorkspaceModel& workspace) {
  const double share = double(step.order.global_micro_batches()) / double(step.mesh.world());
  step.mesh = {};
  step.rank = 0;
  step.order = {};
  step.pipeline = {};
  step.model.parts.clear();
  step.model.other_end = -1;
  step.model.layers = {.keep_activations = step.model.layers.keep_activations};
  PersistentArenas persistent;
  TrainingState state(model, step, optimizer, persistent);
  DryBackend backend(workspace);
  DryArenas arenas;
  Traffic none;
  const double update = run_dry(state, step, optimizer, backend, arenas, none);
  return (backend.flops() - update) * share;
}

bool recomputes(const StepSpec& step) { return !step.model.layers.keep_activations || step.model.recompute_blocks; }

// The same step with nothing computed again.
StepSpec without_recompute(StepSpec step) {
  step.model.layers.keep_activations = true;
  step.model.recompute_blocks = false;
  return step;
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
  const ProcessMesh mesh = dry_mesh(step.mesh, step.rank);
  ParamStore params(step.precision, step.order, mesh);
  Transformer transformer(params, model, step.model);
  PersistentArenas persistent;
  params.allocate_values(persistent.params, persistent.transit);
  transformer.allocate_constants(persistent.constants, step.precision);
  const auto spans = whole_sequences(step);
  DryBackend backend(workspace);
  Arena scratch("evaluation");
  MicroBatch batch = alloc_micro_batch(scratch, step);
  batch.spans = spans;
  Pass p{backend, mesh, step.precision, batch, &scratch, &scratch, &scratch, &scratch, &scratch};
  Nobody nobody;
  score_chunks(p, transformer, std::vector<Neighbours*>(size_t(transformer.num_chunks()), &nobody));
  MemoryPlan plan;
  plan.persistent = persistent.peak();
  plan.evaluation = scratch.peak();
  plan.workspace = backend.workspace_bytes();
  plan.arithmetic = {params.num_elements(), backend.flops(), backend.flops()};
  return plan;
}

MemoryPlan measure(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                   const WorkspaceModel& workspace) {
  MemoryPlan plan = measure_memory(model, step, optimizer, workspace);
  plan.arithmetic = measure_arithmetic(model, step, optimizer, workspace);
  return plan;
}

Arithmetic measure_arithmetic(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                              const WorkspaceModel& workspace) {
  Arithmetic a;
  for (const ParamSpec& p : all_params(model)) a.num_params += p.shape.elements();
  a.model_flops = flops_share(model, without_recompute(step), optimizer, workspace);
  a.hardware_flops = recomputes(step) ? flops_share(model, step, optimizer, workspace) : a.model_flops;
  return a;
}

MemoryPlan measure_memory(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                          const WorkspaceModel& workspace) {
  check_positions(model, step);
  MemoryPlan plan;
  PersistentArenas persistent;
  TrainingState state(model, step, optimizer, persistent, dry_mesh(step.mesh, step.rank, &plan.traffic));
  plan.persistent = persistent.peak();
  DryBackend backend(workspace);
  DryArenas arenas;
  run_dry(state, step, optimizer, backend, arenas, plan.traffic);
  std::vector<Liveness> slots = liveness_of_chunks(step.schedule);
  slots.resize(arenas.chunks.size());
  for (size_t c = 0; c < slots.size(); ++c) {
    const DryChunk& chunk = arenas.chunks[c];
    plan.chunks.push_back({slots[c], chunk.till_dgrad.peak(), chunk.till_wgrad.peak(), chunk.between.peak()});
  }
  plan.handover = arenas.handover.peak();
  plan.replay = arenas.replay.peak();
  plan.scratch = arenas.scratch.peak();
  plan.workspace = backend.workspace_bytes();
  if (step.evaluates) {
    const MemoryPlan forward = measure_forward(model, step, workspace);
    plan.evaluation = forward.evaluation;
    plan.workspace = std::max(plan.workspace, forward.workspace);
  }
  return plan;
}

std::vector<std::vector<Tensor>> alloc_handover(Arena& arena, const Transformer& model, const StepSpec& step) {
  std::vector<std::vector<Tensor>> all(size_t(model.num_chunks()));
  for (int c = 0; c < model.num_chunks(); ++c) {
    for (int i = 0; i < kGradientsUnderWay && !model.part(c).embedding; ++i)
      all[size_t(c)].push_back(arena.alloc(step.precision.compute, {step.stream().count, model.spec().width},
                                           tokens(step.model.layers.stream)));
  }
  return all;
}

std::vector<MemoryPlan::Row> MemoryPlan::rows() const {
  std::vector<Row> all{{"parameters", "masters and compute copies", 1, persistent.params},
                       {"gradients", "sums over micro-batches", 1, persistent.grads},
                       {"optimizer state", "moments", 1, persistent.states},
                       {"blocks in transit", "weights fetched, gradients to be reduced", 1, persistent.transit},
                       {"constants", "table of rotations", 1, persistent.constants},
                       {"losses and norms", "", 1, persistent.records}};
  for (size_t c = 0; c < chunks.size(); ++c) {
    const Chunk& k = chunks[c];
    const std::string of = chunks.size() > 1 ? fmt::format(", chunk {}", c) : "";
    all.push_back(
        {"activations till dgrad" + of, "forward .. dgrad, per micro-batch alive", k.slots.till_dgrad, k.till_dgrad});
    all.push_back(
        {"activations till wgrad" + of, "forward .. wgrad, per micro-batch alive", k.slots.till_wgrad, k.till_wgrad});
    all.push_back({"gradients till wgrad" + of, "dgrad .. wgrad, per micro-batch alive", k.slots.dgrad_till_wgrad,
                   k.dgrad_till_wgrad});
  }
  if (handover > 0) all.push_back({"handover", "gradients on their way to other stages", 1, handover});
  all.push_back({"replay", "a layer computed again", 1, replay});
  all.push_back({"scratch", "temporaries of layers, of the update", 1, scratch});
  all.push_back({"workspace", "temporaries of kernels", 1, workspace});
  all.push_back({"evaluation", "loss without training", 1, evaluation});
  return all;
}

int64_t MemoryPlan::total_bytes() const {
  int64_t total = 0;
  for (const Row& row : rows()) total += row.bytes();
  return total;
}

std::string to_string(const MemoryPlan& plan) {
  std::string text = fmt::format("{:<32} {:<42} {:>6} {:>14} {:>14}\n", "memory", "", "count", "MiB each", "MiB");
  for (const auto& row : plan.rows()) {
    text += fmt::format("{:<32} {:<42} {:>6} {:>14.2f} {:>14.2f}\n", row.name, row.meaning, row.count,
                        double(row.bytes_each) / kMiB, double(row.bytes()) / kMiB);
  }
  return text +
         fmt::format("{:<32} {:<42} {:>6} {:>14} {:>14.2f}\n", "total", "", "", "", double(plan.total_bytes()) / kMiB);
}

}  // namespace weft
