// The way out of a sublayer, from features cut on tp back to the stream.
//   t tokens of this rank's stream   T the same, whole on tp   d width of the stream
#pragma once
#include <string>
#include <string_view>

#include "weft/nn/projection.h"
#include "weft/nn/stream_dropout.h"
#include "weft/sharding/boundary.h"

namespace weft {

// y = dropout(sum over tp of x W^T + b).
//   x, dx [T, in]   y, dy [t, d]   W [d, in], cut by columns   b [d] or none, whole
class RowParallelLinear {
 public:
  using Saved = Projection::Saved;
  struct Spec {
    int64_t in, out;
    int64_t grain;  // of its columns: those of a head stay together
    bool bias;
    double init_std;
    std::string_view dropout_name;
    double dropout;
  };
  RowParallelLinear(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);
  int64_t in() const { return projection_.in(); }

  // Both results lie in scratch: y placed like the stream, dx cut by columns like x.
  Tensor forward(Pass& p, Saved& s, Tensor x) const;
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  void wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy) const;

 private:
  Projection projection_;
  RowBias bias_;
  Boundary leave_;
  StreamDropout dropout_;
};

}  // namespace weft
