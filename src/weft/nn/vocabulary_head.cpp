#include "weft/nn/vocabulary_head.h"

#include <algorithm>

#include "weft/nn/shared_product.h"

namespace weft {
namespace {

// Backward each chunk is added to the table's gradient. With so many rows, the products take longer than reading and
// writing that: on an H100 from about 600 on, by its rates. No more than the table is wide, so that logits are never
// larger than that gradient.
constexpr int64_t kRowsBackward = 1024;
constexpr int64_t kChunkMultiple = 16;
constexpr int64_t kRowMultiple = 16;  // elements: rows that begin on a cache line make the head's products faster

// Some of its tokens: what dropout of a chunk is keyed by.
MicroBatch tokens_of(const MicroBatch& batch, int64_t first, int64_t rows) {
  MicroBatch some = batch;
  some.tokens = batch.tokens.slice_rows(first, rows);
  return some;
}

// A pass of a chunk, which ends before its logits do.
Pass in_scratch(const Pass& p, const MicroBatch& batch) {
  return {.be = p.be,
          .mesh = p.mesh,
          .precision = p.precision,
          .batch = batch,
          .scratch = p.scratch,
          .till_dgrad = p.scratch,
          .till_wgrad = p.scratch,
          .dgrad_till_wgrad = p.scratch,
          .replay = p.scratch,
          .dropout_key = p.dropout_key,
          .adapters = p.adapters};
}

}  // namespace

VocabularyHead::VocabularyHead(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : w_(spec.table ? spec.table
                    : &params.add({.name = std::string(kMatrix),
                                   .shape = {spec.vocab_size, spec.width},
                                   .place = weights(plan.table()),
                                   .init = {Init::Kind::normal, spec.init_std}})),
      adapter_(spec.table ? std::nullopt : Adapter::make(params, "head", *w_)),
      cap_(spec.softcap),
      loss_(*w_),
      enter_(Axis::tp, plan.stream, plan.cut_vocabulary ? Spmd::Replicate : plan.stream),
      join_(Axis::tp, plan.cut_vocabulary ? Spmd::Partial : plan.stream,
            plan.cut_vocabulary ? Spmd::Invariant : plan.stream),
      loss_place_(loss_place(plan)),
      logits_bytes_(plan.logits_bytes) {}

// Equal chunks, as few as fit: the same on every rank.
std::vector<VocabularyHead::Chunk> VocabularyHead::chunks_of(const Pass& p, int64_t tokens, int64_t least) const {
  const int64_t row_bytes = w_->spec().shape[0] * size_of(p.precision.stat);
  const int64_t most = std::max({kChunkMultiple, logits_bytes_ / row_bytes, std::min(least, w_->spec().shape[1])});
  const int64_t count = (tokens + most - 1) / most;
  const int64_t even = (tokens + count - 1) / std::max<int64_t>(count, 1);
  const int64_t rows = std::min(tokens, (even + kChunkMultiple - 1) / kChunkMultiple * kChunkMultiple);
  std::vector<Chunk> chunks;
  for (int64_t first = 0; first < tokens; first += rows) chunks.push_back({first, std::min(rows, tokens - first)});
  return chunks;
}

// Logits of some rows of an h held so, each beginning on a cache line.
Tensor VocabularyHead::alloc_logits(Pass& p, DType dtype, int64_t rows, Placement h) const {
  const int64_t classes = w_->shape()[0], stride = (classes + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  const Placement place = loss_.is_cut() ? h.on_tp(Spmd::Shard1) : h;
  return p.scratch->alloc(dtype, {rows, stride}, place).slice_cols(0, classes);
}

// Before the softcap, what the adapter adds.
Tensor VocabularyHead::project(Pass& p, Adapter::Saved& s, Tensor h) const {
  Tensor logits = alloc_logits(p, p.precision.stat, h.rows(), h.place);
  p.be.run(Matmul{.a = h, .b = w_->value, .out = logits, .trans_b = true});
  if (is_adapted(p)) adapter_->forward(p, s, h, logits);
  cap_.forward(p, logits);
  return logits;
}

// Its states, whole on tp, if it is here, and room for what the tokens' distributions are apart.
VocabularyHead::Taught VocabularyHead::taught_by(Pass& p, const Teaching* teaching) const {
  if (teaching == nullptr) return {};
  Tensor states;
  if (teaching->head != nullptr) states = teaching->head->enter_.forward(p.mesh, teaching->states, *p.scratch);
  return {teaching, states, p.stat(p.scratch, {p.batch.targets.rows()}, loss_place_)};
}

VocabularyLoss::Lesson VocabularyHead::Taught::lesson(Pass& p, const Chunk& c) const {
  if (teaching == nullptr) return {};
  const TopLogits& top = p.batch.top;
  if (teaching->head == nullptr)
    return {.top = {top.ids.slice_rows(c.first, c.rows), top.logits.slice_rows(c.first, c.rows),
                    top.lse.slice_rows(c.first, c.rows)},
            .divergence = divergence.slice_rows(c.first, c.rows),
            .loss = teaching->loss};
  Adapter::Saved none;
  return {.logits = teaching->head->project(p, none, states.slice_rows(c.first, c.rows)),
          .divergence = divergence.slice_rows(c.first, c.rows),
          .loss = teaching->loss};
}

void VocabularyHead::token_losses(Pass& p, Tensor states, const TokenLosses& to) const {
  Scope temporaries(*p.scratch);
  const Tensor h = enter_.forward(p.mesh, states, *p.scratch);
  for (const Chunk& c : chunks_of(p, h.rows(), kChunkMultiple)) {
    Scope chunk(*p.scratch);
    Adapter::Saved adapter;
    loss_.run(p, {.logits = project(p, adapter, h.slice_rows(c.first, c.rows)),
                  .targets = p.batch.targets.slice_rows(c.first, c.rows),
                  .weights = p.batch.weights.slice_rows(c.first, c.rows),
                  .nll = to.nll.slice_rows(c.first, c.rows),
                  .parts = to.parts ? to.parts.slice_rows(c.first, c.rows) : Tensor()});
  }
}

Tensor VocabularyHead::loss_and_backward(Pass& p, Tensor states, const HeadTargets& targets) const {
  const Tensor h = enter_.forward(p.mesh, states, *p.scratch);
  Tensor nll = p.stat(p.scratch, {h.rows()}, loss_place_);
  Tensor dh = p.compute(p.scratch, {h.rows(), h.cols()}, h.place.dual());
  const Taught taught = taught_by(p, targets.teaching);
  for (const Chunk& c : chunks_of(p, h.rows(), kRowsBackward)) {
    Scope chunk(*p.scratch);
    const MicroBatch batch = adapter_ ? tokens_of(p.batch, c.first, c.rows) : p.batch;
    Pass here = in_scratch(p, batch);
    Adapter::Saved adapter;
    Tensor hc = h.slice_rows(c.first, c.rows), logits = project(here, adapter, hc);
    const bool in_place = p.precision.compute == p.precision.stat && !cap_.keeps_logits();
    Tensor dlogits = in_place ? logits : alloc_logits(p, p.precision.compute, c.rows, h.place);
    loss_.run(p, {.logits = logits,
                  .targets = targets.ids.slice_rows(c.first, c.rows),
                  .weights = targets.weights.slice_rows(c.first, c.rows),
                  .nll = nll.slice_rows(c.first, c.rows),
                  .dlogits = dlogits,
                  .scale = targets.scale,
                  .lesson = taught.lesson(p, c)});
    cap_.backward(p, logits, dlogits);
    p.be.run(Matmul{.a = dlogits, .b = w_->value, .out = dh.slice_rows(c.first, c.rows)});
    if (is_adapted(p)) {
      adapter_->dgrad(here, adapter, dlogits, dh.slice_rows(c.first, c.rows));
      adapter_->wgrad(here, adapter, hc, dlogits);
    }
    if (w_->learns())
      p.be.run(Matmul{.a = dlogits, .b = hc, .out = w_->grad, .trans_a = true, .accumulate = w_->accumulates()});
  }
  p.be.run(Sum{.x = nll, .out = targets.loss});
  if (targets.teaching != nullptr) p.be.run(Sum{.x = taught.divergence, .out = targets.teaching->divergence});
  return enter_.backward(p.mesh, dh, *p.scratch);
}

// Each rank writes the columns of its classes beside zeros: their sum is all of them.
void VocabularyHead::logits(Pass& p, Tensor states, Tensor logits) const {
  Scope temporaries(*p.scratch);
  const Tensor h = enter_.forward(p.mesh, states, *p.scratch);
  const Tensor parts = logits.placed(h.place.on_tp(join_.from()));
  const Run classes = w_->parts()[0].rows;
  const Tensor here =
      parts.slice_cols(classes.first, classes.count).placed(loss_.is_cut() ? h.place.on_tp(Spmd::Shard1) : h.place);
  p.be.run(Zero{.x = parts});
  multiply_shared(p, Matmul{.a = h, .b = w_->value, .out = here, .trans_b = true});
  Adapter::Saved adapter;
  if (is_adapted(p)) adapter_->forward(p, adapter, h, here);
  cap_.forward(p, here);
  join_.forward(p.mesh, parts, *p.scratch);
}

}  // namespace weft
