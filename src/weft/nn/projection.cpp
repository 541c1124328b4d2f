#include "weft/nn/projection.h"

namespace weft {

Projection::Projection(ParamStore& params, const std::string& name, const Linear::Spec& spec)
    : linear_(params, name, spec), adapter_(Adapter::make(params, name, linear_.weight())) {
  if (adapter_) magnitude_ = Magnitude::make(params, name, linear_.numbers(), *adapter_);
}

void Projection::forward(Pass& p, Saved& s, Tensor x, Tensor y) const {
  if (!is_adapted(p)) return linear_.forward(p, x, y);
  if (!magnitude_) {
    adapter_->narrow(p, s.adapter, x);
    return again(p, s, x, y);
  }
  const Tensor z = s.magnitude.z = p.compute(p.till_dgrad, {y.rows(), y.cols()}, y.place);
  {
    Scope temporaries(*p.scratch);
    linear_.multiply(p, dropped(p, x), z);
  }
  adapter_->forward(p, s.adapter, x, z);
  magnitude_->forward(p, s.magnitude, y);
  add_undropped(p, x, y);
  linear_.add_bias(p, y);
}

// What has magnitudes sees x so: in scratch, or x as it is where nothing is dropped.
Tensor Projection::dropped(Pass& p, Tensor x) const {
  if (!adapter_->drops(p)) return x;
  const Tensor seen = p.compute(p.scratch, {x.rows(), x.cols()}, x.place);
  adapter_->drop(p, x, seen);
  return seen;
}

// y += (x - dropout(x)) W^T: with a factor of 1 for the magnitudes, y is that of x.
void Projection::add_undropped(Pass& p, Tensor x, Tensor y) const {
  if (!adapter_->drops(p)) return;
  Scope temporaries(*p.scratch);
  const Tensor rest = dropped(p, x), more = p.compute(p.scratch, {y.rows(), y.cols()}, y.place);
  p.be.run(Axpby{.x = x, .y = rest, .out = rest, .a = 1, .b = -1});
  linear_.multiply(p, rest, more);
  p.be.run(Add{.x = y, .y = more, .out = y});
}

void Projection::again(Pass& p, Saved& s, Tensor x, Tensor y) const {
  if (magnitude_) {
    magnitude_->again(p, s.magnitude, y);
    add_undropped(p, x, y);
    return linear_.add_bias(p, y);
  }
  if (may_join() && adapter_->forward_joins(p, x.rows())) {
    Scope temporaries(*p.scratch);
    return linear_.forward_with(p, joined(p), x, y);
  }
  linear_.forward(p, x, y);
  if (adapter_) adapter_->again(p, s.adapter, y);
}

void Projection::dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const {
  Scope temporaries(*p.scratch);
  if (may_join() && adapter_->dgrad_joins(p, dy.rows())) {
    adapter_->dnarrow(p, s.adapter, dy);
    return linear_.dgrad_with(p, joined(p), dy, dx);
  }
  const Tensor dz = magnitude_ ? magnitude_->dgrad(p, s.magnitude, dy) : dy;
  if (magnitude_ && adapter_->drops(p)) {  // dy W through x, (dz - dy) W through what was not dropped of it
    linear_.dgrad(p, dy, dx);
    Scope further(*p.scratch);
    const Tensor apart = p.compute(p.scratch, {dy.rows(), dy.cols()}, dy.place),
                 through = p.compute(p.scratch, {dx.rows(), dx.cols()}, dx.place);
    p.be.run(Axpby{.x = dz, .y = dy, .out = apart, .a = 1, .b = -1});
    linear_.dgrad(p, apart, through);
    adapter_->drop(p, through, through);
    p.be.run(Add{.x = dx, .y = through, .out = dx});
  } else {
    linear_.dgrad(p, dz, dx);
  }
  if (adapter_) adapter_->dgrad(p, s.adapter, dz, dx);
}

void Projection::wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy) const {
  Scope temporaries(*p.scratch);
  if (adapter_) adapter_->wgrad(p, s.adapter, x, magnitude_ ? magnitude_->wgrad(p, s.magnitude, dy) : dy);
  linear_.wgrad(p, x, dy);
}

Projection::Matrix Projection::matrix(Pass& p) const {
  const Param& w = linear_.weight();
  WEFT_CHECK(w.parts().size() == 1, "{}: a matrix of {} parts as one", w.spec().name, w.parts().size());
  if (!is_adapted(p)) return {.rows = linear_.numbers().part(p, 0)};
  Matrix m{.rows = joined(p)};
  if (magnitude_) m.factor = magnitude_->factor(p);
  return m;
}

// W + scale B A, in scratch till the caller's Scope ends.
Tensor Projection::joined(Pass& p) const {
  const Param& w = linear_.weight();
  const Tensor sum = p.compute(p.scratch, w.shape(), w.spec().place);
  Scope temporaries(*p.scratch);
  p.be.run(Copy{.from = linear_.numbers().whole(p), .to = sum});
  adapter_->add_to_matrix(p, sum);
  return sum;
}

}  // namespace weft
