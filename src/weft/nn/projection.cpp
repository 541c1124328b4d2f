#include "weft/nn/projection.h"

namespace weft {

Projection::Projection(ParamStore& params, const std::string& name, const Linear::Spec& spec)
    : linear_(params, name, spec), adapter_(Adapter::make(params, name, linear_.weight())) {
  if (adapter_) magnitude_ = Magnitude::make(params, name, linear_.weight(), *adapter_);
}

void Projection::forward(Pass& p, Saved& s, Tensor x, Tensor y) const {
  if (!adapter_ || !p.adapters) return linear_.forward(p, x, y);
  if (!magnitude_) {
    linear_.forward(p, x, y);
    return adapter_->forward(p, s.adapter, x, y);
  }
  const Tensor z = s.magnitude.z = p.compute(p.till_dgrad, {y.rows(), y.cols()}, y.place);
  linear_.multiply(p, x, z);
  adapter_->forward(p, s.adapter, x, z);
  magnitude_->forward(p, s.magnitude, y);
  linear_.add_bias(p, y);
}

void Projection::dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const {
  Scope temporaries(*p.scratch);
  const Tensor dz = magnitude_ ? magnitude_->dgrad(p, s.magnitude, dy) : dy;
  linear_.dgrad(p, dz, dx);
  if (adapter_) adapter_->dgrad(p, s.adapter, dz, dx);
}

void Projection::wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy) const {
  Scope temporaries(*p.scratch);
  if (adapter_) adapter_->wgrad(p, s.adapter, x, magnitude_ ? magnitude_->wgrad(p, s.magnitude, dy) : dy);
  linear_.wgrad(p, x, dy);
}

}  // namespace weft
