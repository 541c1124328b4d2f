#include "weft/plan/memory_plan.h"

#include <algorithm>

#include "weft/ops/dry/dry_backend.h"
#include "weft/plan/chunk_pass.h"

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

// Chunks elsewhere: nothing comes or goes.
class Nobody final : public Neighbours {
 public:
  explicit Nobody(Tensor gradient) : gradient_(gradient) {}
  void receive_stream(Tensor) override {}
  void send_stream(Tensor) override {}
  void receive_gradient(Tensor) override {}
  Tensor gradient_to_send() override { return gradient_; }
  void send_gradient(Tensor) override {}

 private:
  Tensor gradient_;
};

struct DryChunk {
  Arena till_dgrad{"till dgrad"}, till_wgrad{"till wgrad"}, between{"between"};
  void rewind() {
    for (Arena* a : {&till_dgrad, &till_wgrad, &between}) a->rewind();
  }
};
struct DryArenas {
  Arena scratch{"scratch"}, replay{"replay"}, handover{"handover"};
  std::vector<DryChunk> chunks;
};

// One micro-batch: forward through the chunks, and back.
class DryMicroBatch {
 public:
  DryMicroBatch(const StepSpec& step, TrainingState& state, DryBackend& backend, DryArenas& arenas)
      : step_(step), state_(state), backend_(backend), a_(arenas), spans_(whole_sequences(step)) {
    for (DryChunk& chunk : a_.chunks) chunk.rewind();
    a_.handover.rewind();
    handover_ = alloc_handover(a_.handover, state.model, step);
  }
  void run(int64_t index) {
    const int chunks = state_.model.num_chunks();
    batches_.resize(size_t(chunks));
    std::vector<Transformer::Saved> saved;
    for (int c = 0; c < chunks; ++c) {
      MicroBatch& batch = batches_[size_t(c)];
      batch = alloc_micro_batch(a_.chunks[size_t(c)].till_wgrad, step_);
      batch.index = index;
      batch.spans = spans_;
      batch.loss = state_.losses.slice_rows(step_.order.global_of(index), 1);
      saved.push_back(state_.model.make_saved(c));
      with_pass(c, [&](Pass& p, Neighbours& others) { forward_chunk(p, state_.model, c, saved.back(), others); });
    }
    const Backward what = splits_backward(step_.schedule) ? Backward::dgrad_only : Backward::with_wgrad;
    for (int c = chunks; c-- > 0;) {
      with_pass(c, [&](Pass& p, Neighbours& others) {
        backward_chunk(p, state_.model, c, saved[size_t(c)], others, what);
        if (what == Backward::dgrad_only) state_.model.wgrad(p, saved[size_t(c)], c);
      });
    }
  }

 private:
  template <class F>
  void with_pass(int chunk, const F& f) {
    DryChunk& a = a_.chunks[size_t(chunk)];
    Pass p{backend_,        state_.params.mesh(),
           step_.precision, batches_[size_t(chunk)],
           &a_.scratch,     &a.till_dgrad,
           &a.till_wgrad,   &a.between,
           &a_.replay,      1};
    const auto& sent = handover_[size_t(chunk)];
    Nobody nobody(sent.empty() ? Tensor{} : sent[0]);
    f(p, nobody);
  }
  const StepSpec& step_;
  TrainingState& state_;
  DryBackend& backend_;
  DryArenas& a_;
  std::vector<AttentionSpan> spans_;
  std::vector<MicroBatch> batches_;
  std::vector<std::vector<Tensor>> handover_;
};

// Two micro-batches if there are two (the first overwrites gradients, the second adds), then the update. Returns the
// arithmetic of the latter.
double run_dry(const ModelSpec& model, StepSpec step, const Optimizer& optimizer, DryBackend& backend, DryArenas& a) {
  step.order.num_micro_batches = std::min<int64_t>(step.order.num_micro_batches, 2);
  PersistentArenas persistent;
  TrainingState state(model, step, optimizer, persistent, mesh_of(step));
  a.chunks = std::vector<DryChunk>(size_t(state.model.num_chunks()));
  for (int64_t mb = 0; mb < step.order.num_micro_batches; ++mb) DryMicroBatch(step, state, backend, a).run(mb);
  state.params.finish_step(backend);
  state.norm->wait_measure(backend);
  const double flops = backend.flops();
  update_all(backend, optimizer, state.params, a.scratch, {.lr = 0, .grad_scale = 1, .step = 1});
  return backend.flops() - flops;
}

// A rank's share of the arithmetic of a step before the update: the whole model on one rank, one micro-batch, over all
// ranks.
double flops_share(const ModelSpec& model, StepSpec step, const Optimizer& optimizer, const WorkspaceModel& workspace) {
  const double share = double(step.order.global_micro_batches()) / double(step.mesh.world());
  step.mesh = {};
  step.rank = 0;
  step.order = {};
  step.model.parts.clear();
  step.model.other_end = -1;
  step.model.layers = {.keep_activations = step.model.layers.keep_activations};
  DryBackend backend(workspace);
  DryArenas arenas;
  const double update = run_dry(model, step, optimizer, backend, arenas);
  return (backend.flops() - update) * share;
}

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
  Pass p{backend, mesh, step.precision, batch, &scratch, &scratch, &scratch, &scratch, &scratch};
  Nobody nobody({});
  score_chunks(p, transformer, std::vector<Neighbours*>(size_t(transformer.num_chunks()), &nobody));
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
  for (const ParamSpec& p : all_params(model)) plan.num_params += p.shape.elements();
  DryBackend backend(workspace);
  DryArenas arenas;
  const double update_flops = run_dry(model, step, optimizer, backend, arenas);
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
  plan.hardware_flops = flops_share(model, step, optimizer, workspace) + update_flops;
  plan.model_flops = flops_share(model, without_recompute(step), optimizer, workspace);
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
