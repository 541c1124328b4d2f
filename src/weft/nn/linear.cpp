#include "weft/nn/linear.h"

#include "weft/nn/shared_product.h"

namespace weft {

Linear::Linear(ParamStore& params, const std::string& name, const Spec& spec)
    : w_(&params.add({.name = name + ".weight",
                      .shape = {spec.out, spec.in},
                      .place = spec.place,
                      .parts = spec.parts,
                      .init = {Init::Kind::normal, spec.init_std},
                      .linear = true,
                      .always_numbers = spec.always_numbers})),
      numbers_(*w_, params.precision().stat) {
  if (spec.bias)
    b_ = &params.add({.name = name + ".bias", .shape = {spec.out}, .place = spec.place, .parts = spec.parts});
  for (size_t i = 0; i < w_->parts().size(); ++i) {
    const HeldPart& part = w_->parts()[i];
    if (!runs_.empty() && runs_.back().held == part.held && !numbers_.in_codes())
      runs_.back().count += part.rows.count;
    else
      runs_.push_back({part.local_row, part.rows.count, part.held, i});
  }
}

// These rows of W, of b, or of their gradients.
Tensor Linear::Rows::of(const Tensor& w, Spmd on_tp) const {
  return w.slice_rows(first, count).placed(w.place.on_tp(on_tp));
}

Tensor Linear::Rows::columns(const Tensor& y, Spmd everywhere) const {
  const bool cut = held == Spmd::Shard0 || held == Spmd::Shard1 || count == y.cols();
  return y.slice_cols(first, count).placed(cut ? y.place : y.place.on_tp(everywhere));
}

// These rows of w, or where there is none of W: the numbers of codes in scratch, till the caller's Scope ends.
Tensor Linear::matrix(Pass& p, const Rows& rows, const Tensor& w) const {
  if (w) return rows.of(w, rows.held);
  return numbers_.in_codes() ? numbers_.part(p, rows.part) : rows.of(w_->value, rows.held);
}

void Linear::multiply(Pass& p, Tensor x, Tensor y, const Param* bias, Tensor w) const {
  for (const Rows& run : runs_) {
    Scope temporaries(*p.scratch);
    const Matmul product{.a = x,
                         .b = matrix(p, run, w),
                         .out = run.columns(y, Spmd::Replicate),
                         .trans_b = true,
                         .bias = bias ? run.of(bias->value, run.held) : Tensor{}};
    if (numbers_.in_codes() || w)
      p.be.run(product);  // every rank has made the whole matrix
    else
      multiply_shared(p, product);
  }
}

void Linear::add_bias(Pass& p, Tensor y) const {
  for (const Rows& run : runs_)
    if (b_) p.be.run(AddRow{.b = run.of(b_->value, run.held), .y = run.columns(y, Spmd::Replicate)});
}

void Linear::dgrad_with(Pass& p, Tensor w, Tensor dy, Tensor dx) const {
  for (const Rows& run : runs_) {
    Scope temporaries(*p.scratch);
    p.be.run(
        Matmul{.a = run.columns(dy, Spmd::Partial), .b = matrix(p, run, w), .out = dx, .accumulate = run.first > 0});
  }
}

void Linear::wgrad(Pass& p, Tensor x, Tensor dy) const {
  if (!w_->learns()) return;
  const bool accumulate = w_->accumulates(), accumulate_bias = b_ && b_->accumulates();
  for (const Rows& run : runs_) {
    const Tensor part = run.columns(dy, Spmd::Partial);
    p.be.run(
        Matmul{.a = part, .b = x, .out = run.of(w_->grad, dual(run.held)), .trans_a = true, .accumulate = accumulate});
    if (b_) p.be.run(BiasGrad{.dy = part, .db = run.of(b_->grad, dual(run.held)), .accumulate = accumulate_bias});
  }
}

RowBias::RowBias(ParamStore& params, const std::string& name, int64_t width, Spmd whole, bool exists) {
  if (exists) b_ = &params.add({.name = name + ".bias", .shape = {width}, .place = weights(whole)});
}

void RowBias::forward(Pass& p, Tensor y) const {
  if (b_) p.be.run(AddRow{.b = b_->value, .y = y});
}

void RowBias::wgrad(Pass& p, Tensor dy) const {
  if (b_ && b_->learns()) p.be.run(BiasGrad{.dy = dy, .db = b_->grad, .accumulate = b_->accumulates()});
}

}  // namespace weft
