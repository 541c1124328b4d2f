#include "weft/nn/norm.h"

namespace weft {

StreamNorm::StreamNorm(ParamStore& params, const std::string& name, const Spec& spec)
    : w_(&params.add({.name = name + ".weight",
                      .shape = {spec.width},
                      .place = weights(spec.whole),
                      .init = {spec.offset == 0 ? Init::Kind::ones : Init::Kind::zeros}})),
      eps_(spec.eps),
      offset_(spec.offset) {
  if (spec.layer_norm) b_ = &params.add({.name = name + ".bias", .shape = {spec.width}, .place = weights(spec.whole)});
}

void StreamNorm::forward_add(Pass& p, Saved& s, Tensor x, Tensor delta, Tensor sum, Tensor y) const {
  s.x = sum;
  s.mean = b_ ? p.stat(p.till_dgrad, {x.rows()}, x.place) : Tensor{};
  s.rstd = p.stat(p.till_dgrad, {x.rows()}, x.place);
  p.be.run(Norm{.x = x,
                .delta = delta,
                .sum = delta ? sum : Tensor{},
                .w = w_->value,
                .b = b_ ? b_->value : Tensor{},
                .y = y,
                .mean = s.mean,
                .rstd = s.rstd,
                .eps = eps_,
                .offset = offset_});
}

void StreamNorm::again(Pass& p, const Saved& s, Tensor y) const {
  p.be.run(NormApply{.x = s.x,
                     .w = w_->value,
                     .b = b_ ? b_->value : Tensor{},
                     .mean = s.mean,
                     .rstd = s.rstd,
                     .y = y,
                     .offset = offset_});
}

void StreamNorm::dgrad(Pass& p, Saved& s, Tensor dy, Tensor carry, Tensor dx) const {
  s.dw = p.stat(p.dgrad_till_wgrad, w_->shape(), w_->spec().place.dual());
  if (b_) s.db = p.stat(p.dgrad_till_wgrad, b_->shape(), b_->spec().place.dual());
  p.be.run(NormBackward{.x = s.x,
                        .w = w_->value,
                        .mean = s.mean,
                        .rstd = s.rstd,
                        .dy = dy,
                        .carry = carry,
                        .dx = dx,
                        .dw = s.dw,
                        .db = s.db,
                        .offset = offset_});
}

void StreamNorm::wgrad(Pass& p, const Saved& s) const {
  add_gradient(p, *w_, s.dw);
  if (b_) add_gradient(p, *b_, s.db);
}

}  // namespace weft
