#include "weft/step/training_state.h"

#include <algorithm>
#include <utility>

#include "weft/base/error.h"
#include "weft/step/kept_states.h"

namespace weft {

PersistentArenas::PersistentArenas(const Sizes& s, const std::shared_ptr<Memory>& memory)
    : params("parameters", s.params, memory),
      grads("gradients", s.grads, memory),
      states("optimizer state", s.states, memory),
      frozen("frozen weights", s.frozen, memory),
      transit("blocks in transit", s.transit, memory),
      constants("constants", s.constants, memory),
      records("losses and norms", s.records, memory->shared()),
      snapshot("snapshot", s.snapshot, memory) {}

namespace {

Arena begun_again(Arena arena, int64_t bytes) {
  WEFT_CHECK(arena.peak() == bytes, "{}: {} bytes are kept, {} planned", arena.name(), arena.peak(), bytes);
  arena.rewind();
  return arena;
}

}  // namespace

PersistentArenas::PersistentArenas(const Sizes& s, const std::shared_ptr<Memory>& memory, KeptArenas kept)
    : params(begun_again(std::move(kept.params), s.params)),
      grads("gradients", s.grads, memory),
      states(begun_again(std::move(kept.states), s.states)),
      frozen(kept.frozen ? begun_again(std::move(*kept.frozen), s.frozen) : Arena("frozen weights", s.frozen, memory)),
      transit("blocks in transit", s.transit, memory),
      constants("constants", s.constants, memory),
      records("losses and norms", s.records, memory->shared()),
      snapshot("snapshot", s.snapshot, memory) {}

KeptArenas PersistentArenas::take_kept() {
  return {.params = std::move(params), .states = std::move(states), .frozen = std::move(frozen)};
}

PersistentArenas::Sizes PersistentArenas::peak() const {
  return {.params = params.peak(),
          .grads = grads.peak(),
          .states = states.peak(),
          .frozen = frozen.peak(),
          .transit = transit.peak(),
          .constants = constants.peak(),
          .records = records.peak(),
          .snapshot = snapshot.peak()};
}

FrozenModel::FrozenModel(const FrozenSpec& spec, const StepSpec& step, PersistentArenas& arenas,
                         const ProcessMesh& mesh)
    : params(step.precision, step.frozen_order(), mesh.of_frozen(), WeightUse::frozen),
      model(params, spec.model, spec.plan) {
  WEFT_CHECK(spec.plan.layers.stream == step.model.layers.stream && spec.plan.parts.size() == step.model.parts.size(),
             "a frozen model that is cut otherwise than the one that is trained");
  params.allocate_frozen(arenas.frozen, arenas.transit);
  model.allocate_constants(arenas.constants, step.precision);
}

namespace {

// What this rank saves, and two slices of what a neighbour does: shares are nearly equal where ZeRO cuts them, and
// where they are not there are more slices.
int64_t snapshot_bytes(int64_t own, const StepSpec& step) {
  constexpr int64_t kLeastSlice = int64_t{1} << 20;
  const int64_t slices = step.neighbour_slices;
  return std::max<int64_t>(1, own) + (slices == 0 ? 0 : 2 * std::max(kLeastSlice, (own + slices - 1) / slices));
}

}  // namespace

TrainingState::TrainingState(const ModelSpec& spec, const StepSpec& step, const Optimizer& optimizer,
                             PersistentArenas& arenas, const ProcessMesh& mesh)
    : params(step.precision, step.order, mesh), model(params, spec, step.model) {
  params.allocate({arenas.params, arenas.grads, arenas.states, arenas.transit}, optimizer.formats());
  model.allocate_constants(arenas.constants, step.precision);
  for (const FrozenSpec& other : step.frozen) frozen.emplace_back(other, step, arenas, mesh);
  if (step.teacher && step.teacher->apart)
    teacher.emplace(step.teacher->frozen, *step.teacher->apart, arenas, mesh.of_teacher());
  else if (step.teacher)
    teacher.emplace(step.teacher->frozen, step, arenas, mesh);
  norm = std::make_unique<GradNorm>(params, arenas.records, Transformer::num_positions(spec));
  if (step.measures_weights) weight_norms = std::make_unique<WeightNorms>(params, arenas.records);
  losses = arenas.records.alloc(DType::f64, {step.order.global_micro_batches()});
  if (step.predicts_further) mtp_losses = arenas.records.alloc(DType::f64, losses.shape);
  if (step.distillation()) divergences = arenas.records.alloc(DType::f64, losses.shape);
  model.allocate_records(arenas.records, step.precision);
  if (step.saves_beside)
    snapshot = arenas.snapshot.alloc(DType::u8, {snapshot_bytes(bytes_to_save(spec, params, optimizer), step)});
}

double wait_sum_losses(const ProcessMesh& mesh, const Tensor& losses) {
  mesh.dense.all->all_reduce(losses).wait();
  mesh.pp->all_reduce(losses).wait();
  if (losses.data == nullptr) return 0;
  return tree_sum({losses.as<double>(), losses.as<double>() + losses.rows()});
}

MicroBatch alloc_micro_batch(Arena& arena, const StepSpec& step) {
  MicroBatch b =
      alloc_micro_batch(arena, step.micro_batch_tokens(), step.precision.stat,
                        {.further = step.predicts_further, .values = step.predicts_values, .top = step.top_here()});
  b.stream = step.stream();
  b.sequences = step.sequences();
  b.sample_tokens = step.sequences().rows();
  return b;
}

MicroBatch alloc_micro_batch(Arena& arena, int64_t tokens, DType stat, const MicroBatchParts& parts) {
  MicroBatch b;
  b.stream = {0, tokens};
  b.sequences = {.seq_length = tokens};
  b.sample_tokens = tokens;
  b.ids = arena.alloc(DType::i32, {tokens});
  b.targets = arena.alloc(DType::i32, {tokens});
  b.weights = arena.alloc(stat, {tokens});
  b.positions = arena.alloc(DType::i32, {tokens});
  b.tokens = arena.alloc(DType::i64, {tokens});
  if (parts.values) b.value_weights = arena.alloc(stat, {tokens});
  if (parts.further) {
    b.mtp_targets = arena.alloc(DType::i32, {tokens});
    b.mtp_weights = arena.alloc(stat, {tokens});
  }
  if (parts.top > 0)
    b.top = {.ids = arena.alloc(DType::i32, {tokens, parts.top}),
             .logits = arena.alloc(stat, {tokens, parts.top}),
             .lse = arena.alloc(stat, {tokens})};
  return b;
}

}  // namespace weft
