// A teacher beside the model that is trained: its pass over the batch, and what the student's losses read of it.
#include <utility>

#include "weft/step/executor.h"

namespace weft {
namespace {

// The teacher's head, which lies on the same stage as the student's.
const ModelLayer& head_of(const Model& model) {
  for (int c = 0; c < model.num_chunks(); ++c)
    if (model.has_head(c)) return model.layers(c).back();
  WEFT_CHECK(false, "this stage has no head");
}

bool has_head(const Model& model) {
  bool found = false;
  for (int c = 0; c < model.num_chunks(); ++c) found = found || model.has_head(c);
  return found;
}

}  // namespace

// The teacher has its pass before the step, so that its chunks and the student's do not alternate in the schedule. Of
// every micro-batch is kept what its head is given, t d' numbers of the compute type; the product with the head is left
// to the student's loss, where both have logits of one chunk of tokens at a time.
void Executor::make_room_for_states() {
  if (!state_.teacher || apart_ || !has_head(model_)) return;
  const Transformer& teacher = state_.teacher->model;
  MicroBatch batch;
  batch.stream = step_.stream();
  for (int64_t i = 0; i < step_.order.num_micro_batches; ++i)
    taught_states_.push_back(
        taught_.alloc(step_.precision.compute, teacher.stream_shape(batch), teacher.stream_place()));
}

// In a dry run, one micro-batch sends what each of them does.
void Executor::teach_batch(const StepInput& input) {
  if (!state_.teacher) return;
  if (apart_) return ask_teacher(input);
  const int64_t all = step_.order.num_micro_batches;
  const Traffic before = is_dry() ? *traffic_ : Traffic();
  for (int64_t i = 0; i < (is_dry() ? 1 : all); ++i) {
    const ForwardOnly pass{.model = state_.teacher->model,
                           .params = state_.teacher->params,
                           .step = step_,
                           .backend = *backend_,
                           .mesh = frozen_mesh_,
                           .staging = staging_,
                           .links = &links_,
                           .states = taught_states_.empty() ? Tensor() : taught_states_[size_t(i)]};
    pass.score(
        [&](MicroBatch& b) {
          b.index = i;
          input.load(b);
        },
        evaluation_);
  }
  if (is_dry()) traffic_->add(traffic_->since(before), all - 1);
}

// A dry run's micro-batches are all alike.
void Executor::ask_teacher(const StepInput& input) {
  WEFT_CHECK(is_dry() || input.global != nullptr,
             "a teacher with axes of its own, and no way to load its micro-batches");
  apart_->run({.backend = *backend_, .staging = staging_, .evaluation = evaluation_, .traffic = traffic_},
              is_dry() ? input.load : *input.global);
}

// Loads all but a teacher's logits, and where it has found them here before the step, these.
void Executor::load_tokens(MicroBatch& b, const StepInput& input) const {
  if (!apart_ || !b.top.ids) return input.load(b);
  const TopLogits top = std::exchange(b.top, {});
  input.load(b);
  b.top = top;
  if (!is_dry()) apart_->fill(b.index, top);
}

Teaching Executor::teaching_of(int64_t micro_batch) const {
  Teaching teaching{.loss = *step_.distillation(),
                    .divergence = state_.divergences.slice_rows(step_.order.global_of(micro_batch), 1)};
  if (!state_.teacher || apart_) return teaching;
  teaching.head = &state_.teacher->model.vocabulary();
  teaching.states = taught_states_[size_t(micro_batch)];
  return teaching;
}

// The dgrad of the student's head, for which the teacher's is fetched too, if it is here.
void Executor::learn(const ModelLayer& head, Pass& p, Kept& k, size_t at) {
  const std::vector<int> units = state_.teacher && !apart_ ? head_of(state_.teacher->model).units : std::vector<int>();
  for (const int unit : units) state_.teacher->params.fetch(unit);
  head.layer->dgrad(p, *k.layers[at], k.gradient[at + 1], k.gradient[at]);
  for (const int unit : units) state_.teacher->params.release(unit);
}

}  // namespace weft
