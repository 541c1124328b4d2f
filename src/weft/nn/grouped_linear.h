// Products of rows with the weights of their expert.   n rows, by expert   in / out widths, on what of them lives here
#pragma once
#include <string>

#include "weft/nn/pass.h"
#include "weft/sharding/param_store.h"

namespace weft {

// y[r] = W x[r] with the W of the expert that row r is of.
//   x, dx [n, in]   y, dy [n, out]   W [experts out, in], one behind the other, cut over tp as `held`
//   offsets i32 [experts here + 1]: where the rows of each begin
class GroupedLinear {
 public:
  struct Spec {
    int64_t experts, in;
    std::vector<int64_t> out;  // rows of an expert: stacked matrices, each cut on its own
    Spmd held;                 // Shard0: each of them by rows; Shard1: all by columns
    double init_std;
    int64_t grain = 1;  // rows of a matrix that are not cut apart
  };
  GroupedLinear(ParamStore& params, const std::string& name, const Spec& spec);
  int64_t in() const { return w_->shape()[1]; }
  int64_t out() const { return out_; }
  void forward(Pass& p, Tensor x, Tensor offsets, Tensor y) const;
  void dgrad(Pass& p, Tensor dy, Tensor offsets, Tensor dx) const;
  void wgrad(Pass& p, Tensor x, Tensor dy, Tensor offsets) const;  // adds to W.grad

 private:
  Param* w_;
  int64_t out_ = 0;
};

}  // namespace weft
