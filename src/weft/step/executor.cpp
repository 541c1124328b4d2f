#include "weft/step/executor.h"

#include <algorithm>

namespace weft {
Executor::Executor(TrainingState& state, const StepSpec& step, const StepMemory& plan, Resources resources)
    : Executor(state, step, &plan, std::move(resources)) {}

Executor::Executor(TrainingState& state, const StepSpec& step, Resources resources, Traffic& traffic)
    : Executor(state, step, nullptr, std::move(resources)) {
  traffic_ = &traffic;
}

namespace {

Arena arena_of(const char* name, const StepMemory* plan, int64_t StepMemory::*bytes,
               const std::shared_ptr<Memory>& memory) {
  return plan != nullptr ? Arena(name, plan->*bytes, memory) : Arena(name);
}

// The tokens of a micro-batch here: the student's or the teacher's, whichever are more.
int64_t most_tokens(const StepSpec& step) {
  const bool apart = step.teacher && step.teacher->apart;
  return std::max(step.micro_batch_tokens(), apart ? step.teacher->apart->micro_batch_tokens() : 0);
}

}  // namespace

Executor::Executor(TrainingState& state, const StepSpec& step, const StepMemory* plan, Resources resources)
    : state_(state),
      model_(state.model),
      step_(step),
      plan_(plan != nullptr ? *plan : StepMemory()),
      backend_(&resources.backend),
      mesh_(resources.mesh),
      frozen_mesh_(mesh_.of_frozen()),
      teacher_mesh_(mesh_.of_teacher()),
      scratch_(arena_of("scratch", plan, &StepMemory::scratch, resources.memory)),
      replay_(arena_of("replay", plan, &StepMemory::replay, resources.memory)),
      evaluation_(arena_of("evaluation", plan, &StepMemory::evaluation, resources.memory)),
      handover_(arena_of("handover", plan, &StepMemory::handover, resources.memory)),
      taught_(arena_of("states of the teacher", plan, &StepMemory::taught, resources.memory)),
      teacher_rows_(arena_of("logits of the teacher", plan, &StepMemory::teacher_rows, resources.memory->shared())),
      staging_(resources.memory, most_tokens(step), resources.mesh.poller(), step.top_here()),
      links_(model_, step, resources.mesh, &handover_) {
  make_chunks(plan, resources.memory);
  if (step_.teacher && step_.teacher->apart)
    apart_ = std::make_unique<TeacherApart>(TeacherApart::Setup{.teacher = *state_.teacher,
                                                                .student = step_,
                                                                .mesh = teacher_mesh_,
                                                                .states = taught_,
                                                                .rows = teacher_rows_,
                                                                .threads = resources.threads});
  make_room_for_states();
}

void Executor::make_chunks(const StepMemory* plan, const std::shared_ptr<Memory>& memory) {
  for (int c = 0; c < model_.num_chunks(); ++c) {
    const auto slots = [&](const char* name, int Liveness::*count, int64_t StepMemory::Chunk::*bytes) {
      if (plan == nullptr) return Slots(name);
      const StepMemory::Chunk& k = plan->chunks[size_t(c)];
      return Slots(name, k.slots.*count, k.*bytes, memory);
    };
    ChunkState& chunk = chunks_.emplace_back(
        ChunkState{.till_dgrad = slots("activations till dgrad", &Liveness::till_dgrad, &StepMemory::Chunk::till_dgrad),
                   .till_wgrad = slots("activations till wgrad", &Liveness::till_wgrad, &StepMemory::Chunk::till_wgrad),
                   .dgrad_till_wgrad =
                       slots("gradients till wgrad", &Liveness::dgrad_till_wgrad, &StepMemory::Chunk::dgrad_till_wgrad),
                   .instructions = {}});
    for (const Do what : {Do::forward, Do::backward, Do::dgrad, Do::wgrad})
      chunk.instructions[what] = instructions_of(what, model_.layers(c));
    for (int i = 0; i < std::max(1, chunk.till_wgrad.num_slots()); ++i) chunk.spare.push_back(make_kept(c));
  }
}

std::shared_ptr<Executor::Kept> Executor::make_kept(int chunk) const {
  auto kept = std::make_shared<Kept>();
  for (const ModelLayer& l : model_.layers(chunk)) kept->layers.push_back(l.layer->make_saved());
  kept->stream.resize(kept->layers.size() + 1);
  kept->gradient.resize(kept->layers.size() + 1);
  return kept;
}

double Executor::run(const StepInput& input) {
  state_.params.begin_step();
  if (RouterRecords* routers = state_.model.routers()) routers->begin_step();
  if (step_.counts_experts) count_experts(input);
  score_batch(input);
  teach_batch(input);
  const Tensor &losses = state_.losses, &mtp_losses = state_.mtp_losses, &divergences = state_.divergences;
  if (is_dry()) {
    for (const Loop& loop : loops_of(step_.schedule)) count(loop, input);
  } else {
    std::fill_n(losses.as<double>(), losses.rows(), 0.0);
    for (const Tensor& more : {mtp_losses, divergences})
      if (more) std::fill_n(more.as<double>(), more.rows(), 0.0);
    for (const Action& action : step_.schedule) act(action, input);
  }
  if (input.begins) input.begins(nullptr, {Instruction::Op::finish_gradients});
  state_.params.finish_step(*backend_);
  links_.wait_all_sent();
  backend_->wait_all();
  cross_entropy_ = wait_sum_losses(mesh_, losses);
  if (divergences) divergence_ = wait_sum_losses(mesh_, divergences);
  if (mtp_losses) mtp_loss_ = wait_sum_losses(mesh_, mtp_losses);
  if (RouterRecords* routers = state_.model.routers()) routers->wait_sum(mesh_);
  if (input.ends) input.ends();
  const std::optional<Distillation> loss = step_.distillation();
  return loss ? loss->loss(divergence_, cross_entropy_) : cross_entropy_;
}

double Executor::run_on(Backend& backend, const StepInput& input) {
  Backend* const mine = std::exchange(backend_, &backend);
  try {
    const double loss = run(input);
    backend_ = mine;
    return loss;
  } catch (...) {  // the micro-batches in flight are lost; the executor is not used again
    backend_ = mine;
    throw;
  }
}

void Executor::act(const Action& action, const StepInput& input) {
  InFlight& m = action.what == Do::forward ? begin(action, input) : find(action);
  Pass p = pass(m, input.dropout_key);
  if (action.what == Do::forward) begin_forward(p, action.chunk, *m.kept);
  if (action.what == Do::dgrad || action.what == Do::backward) begin_backward(p, action, *m.kept);
  for (const Instruction& i : chunks_[size_t(action.chunk)].instructions.at(action.what)) {
    if (input.begins) input.begins(&action, i);
    execute(i, action, p, m, input);
    if (input.ends) input.ends();
  }
  end(action, m);
}

// A micro-batch's way through a chunk begins.
Executor::InFlight& Executor::begin(const Action& action, const StepInput& input) {
  ChunkState& chunk = chunks_[size_t(action.chunk)];
  WEFT_CHECK(!chunk.spare.empty() && !chunk.in_flight.contains(action.micro_batch), "{}: not expected",
             to_string(action));
  InFlight& m = chunk.in_flight[action.micro_batch];
  m.kept = chunk.spare.back();
  if (!is_dry()) chunk.spare.pop_back();
  m.till_dgrad = &chunk.till_dgrad.take();
  m.till_wgrad = &chunk.till_wgrad.take();
  MicroBatch& b = m.kept->batch;
  b = alloc_micro_batch(*m.till_wgrad, step_);
  b.loss_scale = input.loss_scale;
  b.token_scale = input.scale / double(step_.global_tokens());
  b.index = action.micro_batch;
  b.loss = state_.losses.slice_rows(step_.order.global_of(b.index), 1);
  b.mtp_scale = input.mtp_scale;
  if (!taught_states_.empty() || b.top.ids) b.teaching = teaching_of(b.index);
  if (state_.mtp_losses) b.mtp_loss = state_.mtp_losses.slice_rows(step_.order.global_of(b.index), 1);
  return m;
}

Executor::InFlight& Executor::find(const Action& action) {
  ChunkState& chunk = chunks_[size_t(action.chunk)];
  const auto found = chunk.in_flight.find(action.micro_batch);
  WEFT_CHECK(found != chunk.in_flight.end(), "micro-batch {} is not in flight", action.micro_batch);
  InFlight& m = found->second;
  if (is_dry()) m.kept->batch.index = action.micro_batch;
  if (action.what != Do::wgrad) m.dgrad_till_wgrad = &chunk.dgrad_till_wgrad.take();
  return m;
}

void Executor::begin_forward(Pass& p, int chunk, Kept& k) const {
  k.stream[first_stream(chunk)] = model_.stream(p, p.till_dgrad);
}

// The gradients of streams: that of the last comes from the chunk behind, if there is one, and that of the first goes
// to the chunk before, in a buffer of its own. Where wgrad follows each dgrad, two are alive at once.
void Executor::begin_backward(Pass& p, const Action& action, Kept& k) const {
  const size_t first = first_stream(action.chunk), last = last_stream(action.chunk);
  const auto make = [&] { return model_.stream(p, p.dgrad_till_wgrad); };
  if (last > first || !model_.has_head(action.chunk)) k.gradient[last] = make();
  if (model_.has_embedding(action.chunk) && (last > first || model_.has_head(action.chunk))) k.gradient[first] = make();
  Tensor now = k.gradient[last], other = {};
  for (size_t i = last; i-- > first + 1;) {
    if (action.what == Do::dgrad || !other) other = make();
    k.gradient[i] = other;
    std::swap(now, other);
  }
}

void Executor::execute(const Instruction& i, const Action& action, Pass& p, InFlight& m, const StepInput& input) {
  using Op = Instruction::Op;
  Kept& k = *m.kept;
  const StageLinks::Passage here{action.chunk, action.micro_batch};
  const bool is_forward = action.what == Do::forward, in_pairs = action.what == Do::backward;
  const StageLinks::Way way = is_forward ? StageLinks::Way::forward : StageLinks::Way::backward;
  const size_t first = first_stream(action.chunk), last = last_stream(action.chunk), at = size_t(i.at);
  const auto layer = [&]() -> const ModelLayer& { return model_.layers(action.chunk)[at]; };
  switch (i.op) {
    case Op::load:
      return staging_.load([&](MicroBatch& b) { load(b, input); }, k.batch, *backend_);
    case Op::receive:
      return links_.receive(*backend_, here, way, is_forward ? k.stream[first] : k.gradient[last]);
    case Op::send:
      return links_.send(here, way, is_forward ? k.stream[last] : k.gradient[first]);
    case Op::wait_sent:
      return links_.wait_sent(here);
    case Op::wait_buffer:
      k.gradient[first] = links_.wait_buffer(action.chunk);
      return;
    case Op::forward:
      if (layer().kind == LayerKind::block) k.stream[at + 1] = model_.stream(p, p.till_dgrad);
      return layer().layer->forward(p, *k.layers[at], k.stream[at], k.stream[at + 1]);
    case Op::dgrad:
      k.mark = p.dgrad_till_wgrad->used();
      if (k.batch.teaching && layer().kind == LayerKind::head) return learn(layer(), p, k, at);
      return layer().layer->dgrad(p, *k.layers[at], k.gradient[at + 1], k.gradient[at]);
    case Op::wgrad:
      layer().layer->wgrad(p, *k.layers[at]);
      if (in_pairs && layer().kind == LayerKind::block) p.dgrad_till_wgrad->rewind(k.mark);
      return;
    case Op::fetch:
      return state_.params.fetch(i.at);
    case Op::prefetch:
      return state_.params.prefetch(i.at);
    case Op::release:
      return state_.params.release(i.at);
    case Op::open_gradients:
      return state_.params.open_grads(*backend_, i.at, action.micro_batch);
    case Op::reduce_gradients:
      return state_.params.flush(*backend_, i.at, action.micro_batch, true);
    case Op::finish_gradients:
      break;  // of no action
  }
}

// What ends with an action.
void Executor::end(const Action& action, InFlight& m) {
  ChunkState& chunk = chunks_[size_t(action.chunk)];
  if (action.what == Do::backward || action.what == Do::dgrad)
    chunk.till_dgrad.give(*std::exchange(m.till_dgrad, nullptr));
  if (action.what != Do::backward && action.what != Do::wgrad) return;
  chunk.till_wgrad.give(*m.till_wgrad);
  chunk.dgrad_till_wgrad.give(*m.dgrad_till_wgrad);
  if (!is_dry()) chunk.spare.push_back(m.kept);
  chunk.in_flight.erase(action.micro_batch);
}

Pass Executor::pass(const InFlight& m, uint64_t dropout_key) {
  return {.be = *backend_,
          .mesh = mesh_,
          .precision = step_.precision,
          .batch = m.kept->batch,
          .scratch = &scratch_,
          .till_dgrad = m.till_dgrad,
          .till_wgrad = m.till_wgrad,
          .dgrad_till_wgrad = m.dgrad_till_wgrad,
          .replay = &replay_,
          .dropout_key = dropout_key};
}

TokenLosses Executor::evaluate(const LoadMicroBatch& load) {
  const TokenLosses losses = score({model_, state_.params, mesh_}, load);
  const bool alone = step_.frozen.empty() && !step_.teacher;  // else one of them may need most
  WEFT_CHECK(is_dry() || !alone || evaluation_.peak() == plan_.evaluation, "evaluation used {} bytes, planned {}",
             evaluation_.peak(), plan_.evaluation);
  return losses;
}

TokenLosses Executor::score(const Scorer& scorer, const LoadMicroBatch& load) {
  WEFT_CHECK(step_.evaluates, "this step was planned without evaluation");
  return ForwardOnly{.model = scorer.model,
                     .params = scorer.params,
                     .step = step_,
                     .backend = *backend_,
                     .mesh = scorer.mesh,
                     .staging = staging_,
                     .links = &links_,
                     .adapters = scorer.adapters}
      .score(load, evaluation_);
}

TokenLosses ForwardOnly::score(const LoadMicroBatch& load, Arena& arena) const {
  arena.rewind();
  MicroBatch batch = alloc_micro_batch(arena, step);
  staging.load(load, batch, backend);
  batch.counts_experts = counts_experts;
  Pass p{backend, mesh, step.precision, batch, &arena, &arena, &arena, &arena, &arena, dropout_key, adapters};
  TokenLosses to{.nll = p.stat(&arena, {batch.ids.rows()}, model.loss_place())};
  if (step.predicts_values) to.values = p.stat(&arena, {batch.ids.rows()}, model.value_place());
  if (step.finds_likeliest) to.parts = p.stat(&arena, {batch.ids.rows(), 3 * step.mesh.tp}, model.loss_place());
  for (const Tensor& numbers : {to.nll, to.values, to.parts})
    if (numbers) backend.run(Zero{.x = numbers});
  for (int c = 0; c < model.num_chunks(); ++c) {
    const Tensor x = model.stream(p, &arena), y = model.stream(p, &arena);
    run_chunk(p, c, {x, y}, to);
  }
  for (int c = 0; c < model.num_chunks() && links != nullptr; ++c) links->wait_sent({c, 0});
  backend.wait_all();
  return to;
}

// Layers read one of the streams and write the other.
void ForwardOnly::run_chunk(Pass& p, int chunk, std::array<Tensor, 2> streams, const TokenLosses& to) const {
  using Op = Instruction::Op;
  auto& [x, y] = streams;
  for (const Instruction& i : scoring_instructions(model.layers(chunk))) {
    if (i.op == Op::fetch) params.fetch(i.at);
    if (i.op == Op::prefetch) params.prefetch(i.at);
    if (i.op == Op::release) params.release(i.at);
    if (i.op == Op::receive && links) links->receive(backend, {chunk, 0}, StageLinks::Way::forward, x);
    if (i.op == Op::send && links) links->send({chunk, 0}, StageLinks::Way::forward, x);
    if (i.op != Op::forward) continue;
    const ModelLayer& layer = model.layers(chunk)[size_t(i.at)];
    if (layer.kind == LayerKind::head) {
      states ? model.states(p, x, states) : model.token_losses(p, x, to);
      continue;
    }
    Scope temporaries(*p.scratch);
    layer.layer->forward(p, *layer.layer->make_saved(), x, y);
    std::swap(x, y);
  }
}

StepMemory Executor::used() const {
  StepMemory m{.chunks = {},
               .handover = handover_.peak(),
               .replay = replay_.peak(),
               .scratch = scratch_.peak(),
               .evaluation = evaluation_.peak(),
               .taught = taught_.peak(),
               .teacher_rows = teacher_rows_.peak()};
  for (const ChunkState& c : chunks_)
    m.chunks.push_back(
        {.slots = {c.till_dgrad.most_taken(), c.till_wgrad.most_taken(), c.dgrad_till_wgrad.most_taken()},
         .till_dgrad = c.till_dgrad.peak(),
         .till_wgrad = c.till_wgrad.peak(),
         .dgrad_till_wgrad = c.dgrad_till_wgrad.peak()});
  return m;
}

int64_t Executor::peak_bytes() const {
  const StepMemory m = used();
  int64_t bytes = m.scratch + m.replay + m.evaluation + m.handover + m.taught + m.teacher_rows;
  for (const StepMemory::Chunk& c : m.chunks)
    bytes += c.slots.till_dgrad * c.till_dgrad + c.slots.till_wgrad * c.till_wgrad +
             c.slots.dgrad_till_wgrad * c.dgrad_till_wgrad;
  return bytes;
}

void Executor::check_used() const {
  const StepMemory now = used();
  const auto same = [](const char* name, int64_t bytes, int64_t planned) {
    WEFT_CHECK(bytes == planned, "{}: {} bytes used, {} planned", name, bytes, planned);
  };
  same("scratch", now.scratch, plan_.scratch);
  same("replay", now.replay, plan_.replay);
  same("handover", now.handover, plan_.handover);
  same("states of the teacher", now.taught, plan_.taught);
  same("logits of the teacher", now.teacher_rows, plan_.teacher_rows);
  for (size_t c = 0; c < chunks_.size(); ++c) {
    const StepMemory::Chunk& planned = plan_.chunks[c];
    const auto all = [&](const char* name, const Slots& slots, int count, int64_t bytes) {
      same(name, slots.peak(), bytes);
      same(name, slots.least_peak(), bytes);
      WEFT_CHECK(slots.most_taken() == count, "{}: {} of {} slots used", name, slots.most_taken(), count);
    };
    all("activations till dgrad", chunks_[c].till_dgrad, planned.slots.till_dgrad, planned.till_dgrad);
    all("activations till wgrad", chunks_[c].till_wgrad, planned.slots.till_wgrad, planned.till_wgrad);
    all("gradients till wgrad", chunks_[c].dgrad_till_wgrad, planned.slots.dgrad_till_wgrad, planned.dgrad_till_wgrad);
  }
}

}  // namespace weft
