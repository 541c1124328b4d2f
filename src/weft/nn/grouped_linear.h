// Products of rows with the weights of their expert.   n rows, by expert   in / out widths, on what of them lives here
#pragma once
#include <optional>
#include <string>

#include "weft/nn/grouped_adapter.h"
#include "weft/nn/matrix_numbers.h"
#include "weft/nn/pass.h"
#include "weft/sharding/param_store.h"

namespace weft {

// y[r] = W x[r] with the W of the expert that row r is of; or, where the store has an adapter of W, what that makes of
// it, but in passes that leave it out. A frozen W may be kept in codes: each product makes the numbers of all experts
// here, in scratch.
//   x, dx [n, in]   y, dy [n, out]   W [experts out, in], one behind the other, cut over tp as `held`
class GroupedLinear {
 public:
  struct Spec {
    int64_t experts, in;
    std::vector<int64_t> out;  // rows of an expert: stacked matrices, each cut on its own
    Spmd held;                 // Shard0: each of them by rows; Shard1: all by columns
    double init_std;
    int64_t grain = 1;  // rows of a matrix that are not cut apart
  };
  struct Saved {
    GroupedAdapter::Saved adapter;
  };
  GroupedLinear(ParamStore& params, const std::string& name, const Spec& spec);
  int64_t in() const { return w_->shape()[1]; }
  int64_t out() const { return out_; }
  void forward(Pass& p, Saved& s, Tensor x, const Dispatch::Routes& routes, Tensor y) const;
  void dgrad(Pass& p, Saved& s, Tensor dy, const Dispatch::Routes& routes, Tensor dx) const;
  // Whether the adapter drops in this pass: routes must then have numbers.
  bool drops(const Pass& p) const { return adapter_ && adapter_->drops(p); }
  // Whether there is anything for wgrad to do.
  bool learns() const { return w_->learns() || adapter_; }
  // Adds to W.grad, or to those of the adapter.
  void wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy, const Dispatch::Routes& routes) const;

 private:
  Tensor matrices(Pass& p) const;
  Param* w_;
  MatrixNumbers numbers_;
  std::optional<GroupedAdapter> adapter_;
  int64_t out_ = 0;
};

}  // namespace weft
