// Matrix products with a weight.   t tokens, in / out widths, on whatever part of the weight lives here
#pragma once
#include <string>

#include "weft/nn/matrix_numbers.h"
#include "weft/nn/pass.h"
#include "weft/sharding/param_store.h"

namespace weft {

// y = x W^T + b. Three matrix products, nothing else.
//   x, dx [t, in]   y, dy [t, out]   W [out, in]   b [out] or none
// Where W is cut by rows, but has parts that are everywhere, those columns of y are Replicate and of dy Partial,
// whatever the placement y and dy are given with. A frozen W may be kept in codes: each product makes the numbers of
// one of its parts at a time, in scratch.
class Linear {
 public:
  struct Spec {
    int64_t in, out;
    Placement place;
    bool bias = false;             // cut as the rows of W are; not for a W cut by columns (see RowBias)
    std::vector<Part> parts = {};  // stacked matrices (columns of one, where it is cut so)
    double init_std = 0.02;
    bool always_numbers = false;  // ParamSpec's
  };
  Linear(ParamStore& params, const std::string& name, const Spec& spec);
  int64_t in() const { return w_->shape()[1]; }
  int64_t out() const { return w_->shape()[0]; }
  const Param& weight() const { return *w_; }
  const MatrixNumbers& numbers() const { return numbers_; }
  void forward(Pass& p, Tensor x, Tensor y) const { multiply(p, x, y, b_, {}); }
  // With `w`, of W's shape and placement, in its place; not where W is in codes.
  void forward_with(Pass& p, Tensor w, Tensor x, Tensor y) const { multiply(p, x, y, b_, w); }
  // Forward in two: y = x W^T; then y += b.
  void multiply(Pass& p, Tensor x, Tensor y) const { multiply(p, x, y, nullptr, {}); }
  void add_bias(Pass& p, Tensor y) const;
  void dgrad(Pass& p, Tensor dy, Tensor dx) const { dgrad_with(p, {}, dy, dx); }
  void dgrad_with(Pass& p, Tensor w, Tensor dy, Tensor dx) const;  // as forward_with
  void wgrad(Pass& p, Tensor x, Tensor dy) const;                  // adds to W.grad, b.grad, where they learn

 private:
  struct Rows {  // of W that are held alike; of a W in codes, of one part
    int64_t first, count;
    Spmd held;
    size_t part;  // the first
    Tensor of(const Tensor& w, Spmd on_tp) const;
    Tensor columns(const Tensor& y, Spmd everywhere) const;
  };
  void multiply(Pass& p, Tensor x, Tensor y, const Param* bias, Tensor w) const;
  Tensor matrix(Pass& p, const Rows& rows, const Tensor& w) const;
  Param* w_;
  Param* b_ = nullptr;
  MatrixNumbers numbers_;
  std::vector<Rows> runs_;
};

// A bias that follows a sum over ranks: y += b on the stream.
class RowBias {
 public:
  RowBias(ParamStore& params, const std::string& name, int64_t width, Spmd whole, bool exists);
  void forward(Pass& p, Tensor y) const;
  void wgrad(Pass& p, Tensor dy) const;

 private:
  Param* b_ = nullptr;
};

}  // namespace weft
