#include "weft/plan/memory_plan.h"

#include "weft/plan/dry_step.h"

namespace weft {
namespace {

// A rank's share of the arithmetic of a step before the update: the whole model on one rank, one micro-batch, over all
// ranks.
double flops_share(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                   const WorkspaceModel& workspace) {
  const double share = double(step.order.global_micro_batches()) / double(step.mesh.world());
  return DryStep(model, on_one_rank(step), optimizer, workspace).run() * share;
}

bool computes_twice(const StepSpec& step) {
  return !step.model.layers.keep_activations || step.model.recompute_blocks || !step.model.recompute.empty() ||
         step.counts_experts || step.scores_first;
}

// The same step with nothing computed twice: no recomputation, no pass by the model itself before it, for what routers
// choose or for an objective.
StepSpec computed_once(StepSpec step) {
  step.counts_experts = step.scores_first = false;
  step.model.layers.keep_activations = true;
  step.model.recompute_blocks = false;
  step.model.recompute.clear();
  return step;
}

void check_positions(const ModelSpec& model, const StepSpec& step) {
  if (model.learned_positions && step.seq_length > model.max_positions) {
    throw ConfigError(fmt::format("train.seq_length = {}: the model has a table of {} positions; use at most that",
                                  step.seq_length, model.max_positions));
  }
}

}  // namespace

StepSpec on_one_rank(StepSpec step) {
  step.mesh = {};
  step.rank = 0;
  step.order = {};
  step.pipeline = {};
  step.model.parts.clear();
  step.model.other_end = -1;
  step.model.layers = {.keep_activations = step.model.layers.keep_activations};
  step.schedule = schedule_of(step.pipeline, 0, 1);
  step.evaluates = step.begins_with_scores();
  step.writes = 0;
  const auto make_whole = [&](FrozenSpec& f) {
    f.plan.parts.clear();
    f.plan.other_end = -1;
    f.plan.layers = step.model.layers;
  };
  for (FrozenSpec& f : step.frozen) make_whole(f);
  if (step.teacher) make_whole(step.teacher->frozen);
  if (step.teacher && step.teacher->apart)
    step.teacher->apart = std::make_shared<const StepSpec>(on_one_rank(*step.teacher->apart));
  return step;
}

MemoryPlan measure_forward(const ModelSpec& model, const StepSpec& step, const WorkspaceModel& workspace) {
  check_positions(model, step);
  const ProcessMesh mesh = dry_mesh(step.mesh, step.rank);
  ParamStore params(step.precision, step.order, mesh, WeightUse::frozen);
  Transformer transformer(params, model, step.model);
  PersistentArenas persistent;
  params.allocate_frozen(persistent.params, persistent.transit);
  transformer.allocate_constants(persistent.constants, step.precision);
  const auto spans = whole_sequences(step);
  DryBackend backend(workspace);
  Arena arena("evaluation");
  BatchStaging staging(host_memory(), step.micro_batch_tokens());
  ForwardOnly{transformer, params, step, backend, mesh, staging}.score([&](MicroBatch& b) { b.spans = spans; }, arena);
  MemoryPlan plan;
  plan.persistent = persistent.peak();
  plan.evaluation = arena.peak();
  plan.workspace = backend.workspace_bytes();
  plan.arithmetic = {.num_params = params.num_elements(),
                     .num_trained = 0,
                     .model_flops = backend.flops(),
                     .hardware_flops = backend.flops()};
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
  for (const ParamSpec& p : all_params(model)) {
    a.num_params += p.shape.elements();
    if (p.learns()) a.num_trained += p.shape.elements();
  }
  a.model_flops = flops_share(model, computed_once(step), optimizer, workspace);
  a.hardware_flops = computes_twice(step) ? flops_share(model, step, optimizer, workspace) : a.model_flops;
  return a;
}

MemoryPlan measure_memory(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                          const WorkspaceModel& workspace) {
  check_positions(model, step);
  DryStep dry(model, step, optimizer, workspace);
  dry.run();
  MemoryPlan plan;
  static_cast<StepMemory&>(plan) = dry.memory();
  plan.traffic = dry.traffic();
  plan.persistent = dry.persistent();
  plan.workspace = dry.workspace();
  plan.writing = dry.writing();
  return plan;
}

std::vector<MemoryPlan::Row> MemoryPlan::rows() const {
  std::vector<Row> all{{"parameters", "masters and compute copies", 1, persistent.params},
                       {"gradients", "sums over micro-batches", 1, persistent.grads},
                       {"optimizer state", "moments", 1, persistent.states},
                       {"blocks in transit", "weights fetched, gradients to be reduced", 1, persistent.transit},
                       {"constants", "tables of rotations", 1, persistent.constants},
                       {"losses and norms", "", 1, persistent.records}};
  if (persistent.frozen > 0) all.push_back({"frozen models", "weights as layers read them", 1, persistent.frozen});
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
  if (writing > 0) all.push_back({"texts written", "keys and values, temporaries of a pass", 1, writing});
  if (persistent.snapshot > 0) all.push_back({"snapshot", "of a checkpoint that is written", 1, persistent.snapshot});
  if (taught > 0)
    all.push_back(
        {"states of the teacher",
         teacher_rows > 0 ? "what its head is given, some of its logits" : "what its head is given, till the loss", 1,
         taught});
  if (teacher_rows > 0)
    all.push_back({"logits of the teacher", "the largest of each token, till the loss", 1, teacher_rows});
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
