// A matrix product with a weight that may have an adapter.   t tokens, in / out widths, on whatever part lives here
#pragma once
#include <optional>
#include <string>

#include "weft/nn/adapter.h"
#include "weft/nn/linear.h"

namespace weft {

// y = x W^T + b; or, where the store has an adapter of W, what that adds too, but in passes that leave it out.
//   x, dx [t, in]   y, dy [t, out]
class Projection {
 public:
  using Saved = Adapter::Saved;
  Projection(ParamStore& params, const std::string& name, const Linear::Spec& spec)
      : linear_(params, name, spec), adapter_(Adapter::make(params, name, linear_.weight())) {}
  int64_t in() const { return linear_.in(); }
  int64_t out() const { return linear_.out(); }
  const Param& weight() const { return linear_.weight(); }

  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const {
    linear_.forward(p, x, y);
    if (adapter_ && p.adapters) adapter_->forward(p, s, x, y);
  }
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const {
    linear_.dgrad(p, dy, dx);
    if (adapter_) adapter_->dgrad(p, s, dy, dx);
  }
  // Adds to W.grad, b.grad, or to those of the adapter.
  void wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy) const {
    if (adapter_) adapter_->wgrad(p, s, x, dy);
    linear_.wgrad(p, x, dy);
  }

 private:
  Linear linear_;
  std::optional<Adapter> adapter_;
};

}  // namespace weft
