// A matrix product with a weight that may have an adapter.   t tokens, in / out widths, on whatever part lives here
#pragma once
#include <optional>
#include <string>

#include "weft/nn/adapter.h"
#include "weft/nn/linear.h"
#include "weft/nn/magnitude.h"

namespace weft {

// y = x W^T + b; or, where the store has an adapter of W, what that makes of it, but in passes that leave it out.
//   x, dx [t, in]   y, dy [t, out]
class Projection {
 public:
  struct Saved {
    Adapter::Saved adapter;
    Magnitude::Saved magnitude;
  };
  Projection(ParamStore& params, const std::string& name, const Linear::Spec& spec);
  int64_t in() const { return linear_.in(); }
  int64_t out() const { return linear_.out(); }
  const Param& weight() const { return linear_.weight(); }

  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const;
  // In dgrad, where y was not kept: what forward wrote.
  void again(Pass& p, Saved& s, Tensor x, Tensor y) const;
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const;
  // Adds to W.grad, b.grad, or to those of the adapter.
  void wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy) const;

  // What the product multiplies with, for layers that multiply with single rows of it: y[., j] = factor[j] x V[j]^T.
  struct Matrix {
    Tensor rows;         // V [out, in]  compute
    Tensor factor = {};  // [out] stat   none: ones
  };
  // Of a weight of one part without bias. Lives till the caller's Scope ends.
  Matrix matrix(Pass& p) const;

 private:
  bool is_adapted(const Pass& p) const { return adapter_ && p.adapters; }
  Tensor dropped(Pass& p, Tensor x) const;
  void add_undropped(Pass& p, Tensor x, Tensor y) const;
  bool may_join() const { return adapter_ && !magnitude_ && !linear_.numbers().in_codes(); }
  Tensor joined(Pass& p) const;
  Linear linear_;
  std::optional<Adapter> adapter_;
  std::optional<Magnitude> magnitude_;
};

}  // namespace weft
