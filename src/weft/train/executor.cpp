#include "weft/train/executor.h"

#include <algorithm>

namespace weft {

Executor::Executor(TrainingState& state, const StepSpec& step, const MemoryPlan& plan, Resources resources)
    : state_(state),
      step_(step),
      plan_(plan),
      backend_(&resources.backend),
      mesh_(resources.mesh),
      scratch_("scratch", plan.scratch),
      replay_("replay", plan.replay),
      evaluation_("evaluation", plan.evaluation),
      till_dgrad_("activations till dgrad", plan.slots.till_dgrad, plan.till_dgrad),
      till_wgrad_("activations till wgrad", plan.slots.till_wgrad, plan.till_wgrad),
      dgrad_till_wgrad_("gradients till wgrad", plan.slots.dgrad_till_wgrad, plan.dgrad_till_wgrad),
      in_flight_(size_t(plan.slots.till_wgrad)) {
  for (InFlight& m : in_flight_) m.saved = state.model.make_saved();
}

double Executor::run(const StepInput& input) {
  state_.params.begin_step();
  const Tensor& losses = state_.losses;
  std::fill_n(losses.as<double>(), losses.rows(), 0.0);
  for (const Action& action : step_.schedule) act(action, input);
  state_.params.finish_step(*backend_);
  backend_->wait_all();
  mesh_[Axis::dp].all_reduce(losses).wait();  // each is of one rank and zero on the others: the sum is exact
  return tree_sum({losses.as<double>(), losses.as<double>() + losses.rows()});
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
  if (action.what == Do::forward) {
    InFlight& m = find(-1);
    begin(m, action.micro_batch, input);
    Pass p = pass(m, input.dropout_key);
    state_.model.forward(p, m.saved);
    return;
  }
  InFlight& m = find(action.micro_batch);
  if (action.what != Do::wgrad) m.dgrad_till_wgrad = &dgrad_till_wgrad_.take();
  Pass p = pass(m, input.dropout_key);
  if (action.what == Do::backward) state_.model.backward(p, m.saved);
  if (action.what == Do::dgrad) state_.model.dgrad(p, m.saved);
  if (action.what == Do::wgrad) state_.model.wgrad(p, m.saved);
  if (action.what != Do::wgrad) till_dgrad_.give(*m.till_dgrad);
  if (action.what == Do::dgrad) return;
  till_wgrad_.give(*m.till_wgrad);
  dgrad_till_wgrad_.give(*m.dgrad_till_wgrad);
  m.busy = false;
}

void Executor::begin(InFlight& m, int64_t micro_batch, const StepInput& input) {
  m.busy = true;
  m.till_dgrad = &till_dgrad_.take();
  m.till_wgrad = &till_wgrad_.take();
  m.batch = alloc_micro_batch(*m.till_wgrad, step_);
  m.batch.index = micro_batch;
  m.batch.loss = state_.losses.slice_rows(step_.order.global_of(micro_batch), 1);
  m.batch.loss_scale = input.loss_scale;
  input.load(m.batch);
}

// The slot of a micro-batch in flight; of -1, a free one.
Executor::InFlight& Executor::find(int64_t micro_batch) {
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& m) {
    return micro_batch < 0 ? !m.busy : m.busy && m.batch.index == micro_batch;
  });
  WEFT_CHECK(found != in_flight_.end(), "micro-batch {} is not in flight", micro_batch);
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
  const Tensor nll = ForwardOnly{state_.model, step_, *backend_, mesh_}.score(load, evaluation_);
  WEFT_CHECK(evaluation_.peak() == plan_.evaluation, "evaluation used {} bytes, planned {}", evaluation_.peak(),
             plan_.evaluation);
  return nll;
}

Tensor ForwardOnly::score(const LoadMicroBatch& load, Arena& arena) const {
  arena.rewind();
  MicroBatch batch = alloc_micro_batch(arena, step);
  load(batch);
  Tensor nll = arena.alloc(step.precision.stat, {step.micro_batch_tokens()}, model.loss_place());
  Pass p{backend, mesh, step.precision, batch, &arena, &arena, &arena, &arena, &arena};
  model.evaluate(p, nll);
  backend.wait_all();
  return nll;
}

int64_t Executor::peak_bytes() const {
  int64_t bytes = scratch_.peak() + replay_.peak() + evaluation_.peak();
  for (const Slots* slots : {&till_dgrad_, &till_wgrad_, &dgrad_till_wgrad_})
    for (const Arena* arena : slots->arenas()) bytes += arena->peak();
  return bytes;
}

void Executor::check_used() const {
  const auto same = [](const Arena& arena, int64_t planned) {
    WEFT_CHECK(arena.peak() == planned, "{}: {} bytes used, {} planned", arena.name(), arena.peak(), planned);
  };
  same(scratch_, plan_.scratch);
  same(replay_, plan_.replay);
  const auto all = [&](const Slots& slots, int64_t planned) {
    WEFT_CHECK(slots.most_taken() == slots.num_slots(), "{} of {} slots used", slots.most_taken(), slots.num_slots());
    for (const Arena* arena : slots.arenas()) same(*arena, planned);
  };
  all(till_dgrad_, plan_.till_dgrad);
  all(till_wgrad_, plan_.till_wgrad);
  all(dgrad_till_wgrad_, plan_.dgrad_till_wgrad);
}

}  // namespace weft
