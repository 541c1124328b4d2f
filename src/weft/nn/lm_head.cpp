#include "weft/nn/lm_head.h"

#include <algorithm>

namespace weft {
namespace {

// Logits of a chunk: large enough for the matrix products, small beside what blocks save.
constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kChunkMultiple = 16;
constexpr int64_t kRowMultiple = 16;  // elements: rows that begin on a cache line make the head's products faster

// Logits of some rows, each beginning on a cache line.
Tensor alloc_logits(Pass& p, DType dtype, Shape shape, Placement place) {
  const int64_t stride = (shape[1] + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  return p.scratch->alloc(dtype, {shape[0], stride}, place).slice_cols(0, shape[1]);
}

}  // namespace

LmHead::LmHead(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : norm_(params, "final_norm", spec.norm),
      w_(spec.tied_to ? &params.tie(*spec.tied_to)
                      : &params.add({.name = "head.weight",
                                     .shape = {spec.vocab_size, spec.norm.width},
                                     .place = weights(plan.whole()),
                                     .init = {Init::Kind::normal, spec.init_std}})) {}

// Equal chunks, as few as fit.
int64_t LmHead::chunk_rows(const Pass& p, int64_t tokens) const {
  const int64_t row_bytes = w_->spec().shape[0] * size_of(p.precision.stat);
  const int64_t most = std::max(kChunkMultiple, kChunkBytes / row_bytes);
  const int64_t chunks = (tokens + most - 1) / most;
  const int64_t rows = (tokens + chunks - 1) / std::max<int64_t>(chunks, 1);
  return std::min(tokens, (rows + kChunkMultiple - 1) / kChunkMultiple * kChunkMultiple);
}

void LmHead::loss(Pass& p, Tensor x) const {
  Scope temporaries(*p.scratch);
  Tensor nll = p.stat(p.scratch, {x.rows()}, x.place);
  token_losses(p, x, nll);
  p.be.run(Sum{.x = nll, .out = p.batch.loss});
}

void LmHead::token_losses(Pass& p, Tensor x, Tensor nll) const {
  Region region(p.be, "head");
  Scope temporaries(*p.scratch);
  StreamNorm::Saved saved;
  Tensor h = p.compute(p.scratch, {x.rows(), x.cols()}, x.place);
  norm_.forward(p, saved, x, h);
  const int64_t rows = chunk_rows(p, x.rows());
  for (int64_t first = 0; first < x.rows(); first += rows) {
    Scope chunk(*p.scratch);
    const int64_t n = std::min(rows, x.rows() - first);
    Tensor logits = alloc_logits(p, p.precision.stat, {n, w_->spec().shape[0]}, x.place);
    p.be.run(Matmul{.a = h.slice_rows(first, n), .b = w_->value, .out = logits, .trans_b = true});
    p.be.run(CrossEntropy{.logits = logits,
                          .targets = p.batch.targets.slice_rows(first, n),
                          .counted = p.batch.counted.slice_rows(first, n),
                          .nll = nll.slice_rows(first, n)});
  }
}

void LmHead::loss_and_backward(Pass& p, Tensor x, Tensor dx) const {
  Region region(p.be, "head");
  Scope temporaries(*p.scratch);
  StreamNorm::Saved saved;
  Tensor nll = p.stat(p.scratch, {x.rows()}, x.place);
  Tensor h = p.compute(p.scratch, {x.rows(), x.cols()}, x.place);
  Tensor dh = p.compute(p.scratch, {x.rows(), x.cols()}, x.place.dual());
  norm_.forward(p, saved, x, h);
  const int64_t rows = chunk_rows(p, x.rows());
  for (int64_t first = 0; first < x.rows(); first += rows) {
    Scope chunk(*p.scratch);
    const int64_t n = std::min(rows, x.rows() - first);
    const Shape shape{n, w_->spec().shape[0]};
    Tensor hc = h.slice_rows(first, n);
    Tensor logits = alloc_logits(p, p.precision.stat, shape, x.place);
    Tensor dlogits =
        p.precision.compute == p.precision.stat ? logits : alloc_logits(p, p.precision.compute, shape, x.place);
    p.be.run(Matmul{.a = hc, .b = w_->value, .out = logits, .trans_b = true});
    p.be.run(CrossEntropy{.logits = logits,
                          .targets = p.batch.targets.slice_rows(first, n),
                          .counted = p.batch.counted.slice_rows(first, n),
                          .nll = nll.slice_rows(first, n),
                          .dlogits = dlogits,
                          .scale = p.batch.loss_scale});
    p.be.run(Matmul{.a = dlogits, .b = w_->value, .out = dh.slice_rows(first, n)});
    p.be.run(Matmul{.a = dlogits, .b = hc, .out = w_->grad, .trans_a = true, .accumulate = w_->accumulates()});
  }
  norm_.dgrad(p, saved, dh, {}, dx);
  p.be.run(Sum{.x = nll, .out = p.batch.loss});
}

void LmHead::logits(Pass& p, Tensor x, Tensor logits) const {
  Scope temporaries(*p.scratch);
  StreamNorm::Saved saved;
  Tensor h = p.compute(p.scratch, {x.rows(), x.cols()}, x.place);
  norm_.forward(p, saved, x, h);
  p.be.run(Matmul{.a = h, .b = w_->value, .out = logits, .trans_b = true});
}

}  // namespace weft
