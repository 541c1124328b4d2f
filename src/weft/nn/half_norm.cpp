#include "weft/nn/half_norm.h"

namespace weft {

void NormBefore::forward(Pass& p, Saved& s, Tensor x, Tensor h) const {
  s.x = x;
  norm_ ? norm_->forward(p, s, x, h) : p.be.run(Copy{.from = x, .to = h});
}

void NormBefore::forward_add(Pass& p, Saved& s, Tensor x, Tensor delta, Tensor sum, Tensor h) const {
  if (norm_) return norm_->forward_add(p, s, x, delta, sum, h);
  p.be.run(Add{.x = x, .y = delta, .out = sum});
  forward(p, s, sum, h);
}

void NormBefore::again(Pass& p, const Saved& s, Tensor h) const {
  norm_ ? norm_->again(p, s, h) : p.be.run(Copy{.from = s.x, .to = h});
}

void NormBefore::dgrad(Pass& p, Saved& s, Tensor dh, Tensor carry, Tensor dx) const {
  norm_ ? norm_->dgrad(p, s, dh, carry, dx) : p.be.run(Add{.x = dh, .y = carry, .out = dx});
}

void NormBefore::wgrad(Pass& p, const Saved& s) const {
  if (norm_) norm_->wgrad(p, s);
}

Tensor NormBehind::forward(Pass& p, Saved& s, Tensor a) const {
  if (!norm_) return a;
  Tensor kept = p.compute(p.till_dgrad, {a.rows(), a.cols()}, a.place);
  p.be.run(Copy{.from = a, .to = kept});
  norm_->forward(p, s.norm, kept, a);
  return a;
}

Tensor NormBehind::dgrad(Pass& p, Saved& s, Tensor dy) const {
  if (!norm_) return dy;
  Tensor da = p.compute(p.dgrad_till_wgrad, {dy.rows(), dy.cols()}, dy.place);
  norm_->dgrad(p, s.norm, dy, {}, da);
  return da;
}

void NormBehind::wgrad(Pass& p, const Saved& s) const {
  if (norm_) norm_->wgrad(p, s.norm);
}

}  // namespace weft
