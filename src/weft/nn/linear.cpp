#include "weft/nn/linear.h"

namespace weft {

Linear::Linear(ParamStore& params, const std::string& name, const Spec& spec)
    : w_(&params.add({.name = name + ".weight",
                      .shape = {spec.out, spec.in},
                      .place = spec.place,
                      .parts = spec.parts,
                      .init = {Init::Kind::normal, spec.init_std}})) {
  if (spec.bias)
    b_ = &params.add({.name = name + ".bias", .shape = {spec.out}, .place = spec.place, .parts = spec.parts});
}

void Linear::forward(Pass& p, Tensor x, Tensor y) const {
  p.be.run(Matmul{.a = x, .b = w_->value, .out = y, .trans_b = true, .bias = b_ ? b_->value : Tensor{}});
}

void Linear::dgrad(Pass& p, Tensor dy, Tensor dx) const { p.be.run(Matmul{.a = dy, .b = w_->value, .out = dx}); }

void Linear::wgrad(Pass& p, Tensor x, Tensor dy) const {
  p.be.run(Matmul{.a = dy, .b = x, .out = w_->grad, .trans_a = true, .accumulate = w_->accumulates()});
  if (b_) p.be.run(BiasGrad{.dy = dy, .db = b_->grad, .accumulate = b_->accumulates()});
}

RowBias::RowBias(ParamStore& params, const std::string& name, int64_t width, Spmd whole, bool exists) {
  if (exists) b_ = &params.add({.name = name + ".bias", .shape = {width}, .place = weights(whole)});
}

void RowBias::forward(Pass& p, Tensor y) const {
  if (b_) p.be.run(AddRow{.b = b_->value, .y = y});
}

void RowBias::wgrad(Pass& p, Tensor dy) const {
  if (b_) p.be.run(BiasGrad{.dy = dy, .db = b_->grad, .accumulate = b_->accumulates()});
}

}  // namespace weft
