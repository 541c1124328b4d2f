#include "weft/train/executor.h"

#include <algorithm>

namespace weft {

Executor::Executor(TrainingState& state, const StepSpec& step, const MemoryPlan& plan, Resources resources)
    : state_(state),
      step_(step),
      plan_(plan),
      backend_(&resources.backend),
      mesh_(resources.mesh),
      scratch_("scratch", plan.scratch, resources.memory),
      replay_("replay", plan.replay, resources.memory),
      evaluation_("evaluation", plan.evaluation, resources.memory),
      handover_("handover", plan.handover, resources.memory),
      staging_(resources.memory, step.micro_batch_tokens(), resources.mesh.poller()),
      chunks_(make_chunks(state, plan, resources.memory)),
      links_(state.model, step, resources.mesh, handover_) {}

std::vector<Executor::ChunkState> Executor::make_chunks(const TrainingState& state, const MemoryPlan& plan,
                                                        const std::shared_ptr<Memory>& memory) {
  std::vector<ChunkState> chunks;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const MemoryPlan::Chunk& k = plan.chunks[c];
    ChunkState chunk{Slots("activations till dgrad", k.slots.till_dgrad, k.till_dgrad, memory),
                     Slots("activations till wgrad", k.slots.till_wgrad, k.till_wgrad, memory),
                     Slots("gradients till wgrad", k.slots.dgrad_till_wgrad, k.dgrad_till_wgrad, memory),
                     {}};
    chunk.in_flight.resize(size_t(k.slots.till_wgrad));
    for (InFlight& m : chunk.in_flight) m.saved = state.model.make_saved(int(c));
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

double Executor::run(const StepInput& input) {
  state_.params.begin_step();
  const Tensor& losses = state_.losses;
  std::fill_n(losses.as<double>(), losses.rows(), 0.0);
  for (const Action& action : step_.schedule) act(action, input);
  state_.params.finish_step(*backend_);
  links_.wait_all_sent();
  backend_->wait_all();
  return wait_sum_losses(mesh_, losses);
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

void Executor::act(Action action, const StepInput& input) {
  if (input.begins) input.begins(action);
  ChunkState& chunk = chunks_[size_t(action.chunk)];
  StageLinks::Link others(links_, *backend_, action.chunk, action.micro_batch);
  if (action.what == Do::forward) {
    InFlight& m = find(chunk, -1);
    begin(chunk, m, action.micro_batch, input);
    Pass p = pass(m, input.dropout_key);
    return forward_chunk(p, state_.model, action.chunk, m.saved, others);
  }
  InFlight& m = find(chunk, action.micro_batch);
  if (action.what != Do::wgrad) m.dgrad_till_wgrad = &chunk.dgrad_till_wgrad.take();
  Pass p = pass(m, input.dropout_key);
  if (action.what == Do::wgrad) {
    state_.model.wgrad(p, m.saved, action.chunk);
  } else {
    const Backward what = action.what == Do::backward ? Backward::with_wgrad : Backward::dgrad_only;
    backward_chunk(p, state_.model, action.chunk, m.saved, others, what);
    links_.wait_sent(action.chunk, action.micro_batch);
    chunk.till_dgrad.give(*m.till_dgrad);
  }
  if (action.what == Do::dgrad) return;
  chunk.till_wgrad.give(*m.till_wgrad);
  chunk.dgrad_till_wgrad.give(*m.dgrad_till_wgrad);
  m.busy = false;
}

void Executor::begin(ChunkState& chunk, InFlight& m, int64_t micro_batch, const StepInput& input) {
  m.busy = true;
  m.till_dgrad = &chunk.till_dgrad.take();
  m.till_wgrad = &chunk.till_wgrad.take();
  m.batch = alloc_micro_batch(*m.till_wgrad, step_);
  m.batch.index = micro_batch;
  m.batch.loss = state_.losses.slice_rows(step_.order.global_of(micro_batch), 1);
  m.batch.loss_scale = input.loss_scale;
  staging_.load(input.load, m.batch, *backend_);
}

// The slot of a micro-batch in flight through a chunk; of -1, a free one.
Executor::InFlight& Executor::find(ChunkState& chunk, int64_t micro_batch) {
  const auto found = std::find_if(chunk.in_flight.begin(), chunk.in_flight.end(), [&](const InFlight& m) {
    return micro_batch < 0 ? !m.busy : m.busy && m.batch.index == micro_batch;
  });
  WEFT_CHECK(found != chunk.in_flight.end(), "micro-batch {} is not in flight", micro_batch);
  return *found;
}

Pass Executor::pass(const InFlight& m, uint64_t dropout_key) {
  return {.be = *backend_,
          .mesh = mesh_,
          .precision = step_.precision,
          .batch = m.batch,
          .scratch = &scratch_,
          .till_dgrad = m.till_dgrad,
          .till_wgrad = m.till_wgrad,
          .dgrad_till_wgrad = m.dgrad_till_wgrad,
          .replay = &replay_,
          .dropout_key = dropout_key};
}

Tensor Executor::evaluate(const LoadMicroBatch& load) {
  WEFT_CHECK(step_.evaluates, "this step was planned without evaluation");
  const Tensor nll = ForwardOnly{state_.model, step_, *backend_, mesh_, staging_, &links_}.score(load, evaluation_);
  WEFT_CHECK(evaluation_.peak() == plan_.evaluation, "evaluation used {} bytes, planned {}", evaluation_.peak(),
             plan_.evaluation);
  return nll;
}

Tensor ForwardOnly::score(const LoadMicroBatch& load, Arena& arena) const {
  arena.rewind();
  MicroBatch batch = alloc_micro_batch(arena, step);
  staging.load(load, batch, backend);
  Pass p{backend, mesh, step.precision, batch, &arena, &arena, &arena, &arena, &arena};
  std::vector<StageLinks::Link> others;
  std::vector<Neighbours*> pointers;
  others.reserve(size_t(model.num_chunks()));
  for (int c = 0; c < model.num_chunks() && links != nullptr; ++c)
    pointers.push_back(&others.emplace_back(*links, backend, c, 0));
  const Tensor nll = score_chunks(p, model, pointers);
  for (int c = 0; c < model.num_chunks() && links != nullptr; ++c) links->wait_sent(c, 0);
  backend.wait_all();
  return nll;
}

int64_t Executor::peak_bytes() const {
  int64_t bytes = scratch_.peak() + replay_.peak() + evaluation_.peak() + handover_.peak();
  for (const ChunkState& chunk : chunks_)
    for (const Slots* slots : {&chunk.till_dgrad, &chunk.till_wgrad, &chunk.dgrad_till_wgrad})
      for (const Arena* arena : slots->arenas()) bytes += arena->peak();
  return bytes;
}

void Executor::check_used() const {
  const auto same = [](const Arena& arena, int64_t planned) {
    WEFT_CHECK(arena.peak() == planned, "{}: {} bytes used, {} planned", arena.name(), arena.peak(), planned);
  };
  same(scratch_, plan_.scratch);
  same(replay_, plan_.replay);
  same(handover_, plan_.handover);
  const auto all = [&](const Slots& slots, int64_t planned) {
    WEFT_CHECK(slots.most_taken() == slots.num_slots(), "{} of {} slots used", slots.most_taken(), slots.num_slots());
    for (const Arena* arena : slots.arenas()) same(*arena, planned);
  };
  for (size_t c = 0; c < chunks_.size(); ++c) {
    all(chunks_[c].till_dgrad, plan_.chunks[c].till_dgrad);
    all(chunks_[c].till_wgrad, plan_.chunks[c].till_wgrad);
    all(chunks_[c].dgrad_till_wgrad, plan_.chunks[c].dgrad_till_wgrad);
  }
}

}  // namespace weft
