#include "weft/plan/dry_step.h"

#include <algorithm>

namespace weft {
namespace {

bool splits_backward(const Schedule& schedule) {
  return std::any_of(schedule.begin(), schedule.end(), [](const Action& a) { return a.what == Do::dgrad; });
}

// One micro-batch: forward through the chunks, and back.
class DryMicroBatch {
 public:
  DryMicroBatch(const StepSpec& step, TrainingState& state, DryBackend& backend, DryArenas& arenas)
      : step_(step), state_(state), backend_(backend), a_(arenas), spans_(whole_sequences(step)) {
    for (DryChunk& c : a_.chunks)
      for (Arena* a : {&c.till_dgrad, &c.till_wgrad, &c.between}) a->rewind();
    a_.handover.rewind();
    links_ = std::make_unique<StageLinks>(state.model, step, state.params.mesh(), a_.handover);
  }
  void run(int64_t index) {
    const int chunks = state_.model.num_chunks();
    batches_.resize(size_t(chunks));
    std::vector<Transformer::Saved> saved;
    for (int c = 0; c < chunks; ++c) {
      begin(c, index);
      saved.push_back(state_.model.make_saved(c));
      with_pass(c, [&](Pass& p, Neighbours& others) { forward_chunk(p, state_.model, c, saved.back(), others); });
    }
    const Backward what = splits_backward(step_.schedule) ? Backward::dgrad_only : Backward::with_wgrad;
    for (int c = chunks; c-- > 0;) {
      with_pass(c, [&](Pass& p, Neighbours& others) {
        backward_chunk(p, state_.model, c, saved[size_t(c)], others, what);
        links_->wait_sent(c, index);
        if (what == Backward::dgrad_only) state_.model.wgrad(p, saved[size_t(c)], c);
      });
    }
  }

 private:
  void begin(int chunk, int64_t index) {
    MicroBatch& batch = batches_[size_t(chunk)];
    batch = alloc_micro_batch(a_.chunks[size_t(chunk)].till_wgrad, step_);
    batch.index = index;
    batch.spans = spans_;
    batch.loss = state_.losses.slice_rows(step_.order.global_of(index), 1);
  }
  template <class F>
  void with_pass(int chunk, const F& f) {
    DryChunk& a = a_.chunks[size_t(chunk)];
    Pass p{backend_,        state_.params.mesh(),
           step_.precision, batches_[size_t(chunk)],
           &a_.scratch,     &a.till_dgrad,
           &a.till_wgrad,   &a.between,
           &a_.replay,      1};
    StageLinks::Link others(*links_, backend_, chunk, batches_[size_t(chunk)].index);
    f(p, others);
  }
  const StepSpec& step_;
  TrainingState& state_;
  DryBackend& backend_;
  DryArenas& a_;
  std::vector<AttentionSpan> spans_;
  std::vector<MicroBatch> batches_;
  std::unique_ptr<StageLinks> links_;
};

}  // namespace

double run_dry(TrainingState& state, const StepSpec& step, const Optimizer& optimizer, DryBackend& backend,
               DryArenas& arenas, Traffic& traffic) {
  const int64_t num = step.order.num_micro_batches;
  arenas.chunks = std::vector<DryChunk>(size_t(state.model.num_chunks()));
  DryMicroBatch(step, state, backend, arenas).run(0);
  if (num > 1) {
    traffic.repeat(num - 1);
    state.params.pass_over(1, num - 1);
    DryMicroBatch(step, state, backend, arenas).run(num - 1);
  }
  state.params.finish_step(backend);
  wait_sum_losses(state.params.mesh(), state.losses);
  state.norm->wait_measure(backend);
  const double flops = backend.flops();
  update_all(backend, optimizer, state.params, arenas.scratch, {.lr = 0, .grad_scale = 1, .step = 1});
  return backend.flops() - flops;
}

std::vector<AttentionSpan> whole_sequences(const StepSpec& step) {
  std::vector<AttentionSpan> spans;
  for (int64_t i = 0; i < step.micro_batch_size; ++i) {
    const int64_t row = i * step.seq_length;
    spans.push_back({.q_row = row, .q_count = step.seq_length, .k_row = row, .k_count = step.seq_length});
  }
  return spans;
}

}  // namespace weft
