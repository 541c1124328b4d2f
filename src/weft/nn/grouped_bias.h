// Biases of experts.   n rows, by expert   w width of a row, of which tp gives each rank some columns
#pragma once
#include <string>

#include "weft/nn/pass.h"
#include "weft/sharding/dispatch.h"
#include "weft/sharding/param_store.h"

namespace weft {

// y[r] += scale[r] b, with the b of the expert that row r is of.
//   y, dy [n, w], cut by columns or not: then each rank adds to its own, for the sum over ranks   scale [n, 1] compute
//   b [experts w], one behind the other
class GroupedBias {
 public:
  struct Spec {
    int64_t experts, width;
    int64_t grain = 1;  // columns that are not cut apart
    bool exists;
  };
  GroupedBias(ParamStore& params, const std::string& name, const Spec& spec);
  bool learns() const { return b_ && b_->learns(); }
  void forward(Pass& p, Tensor scale, const Dispatch::Routes& routes, Tensor y) const;
  void dgrad(Pass& p, Tensor dy, const Dispatch::Routes& routes, Tensor dscale) const;  // adds to dscale, [n] stat
  void wgrad(Pass& p, Tensor scale, Tensor dy, const Dispatch::Routes& routes) const;   // adds to b.grad

 private:
  Tensor columns_of(const Tensor& y) const;

  Param* b_ = nullptr;
  int64_t first_ = 0, width_ = 0;  // columns here
};

}  // namespace weft
