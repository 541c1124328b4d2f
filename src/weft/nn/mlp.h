// The feed-forward half of a block.
//   t tokens of this rank's stream   T the same, whole on tp   d width of the stream   f inner width (here)
#pragma once
#include <string>

#include "weft/nn/projection.h"
#include "weft/nn/row_parallel_linear.h"
#include "weft/sharding/boundary.h"

namespace weft {

// y = down(act(up(h))). act: a gated unit on [gate | up], or GELU.
class Mlp {
 public:
  enum class Act : uint8_t { swiglu, geglu_tanh, gelu_tanh, gelu_erf };
  struct Spec {
    int64_t width, inner;
    Act act;
    bool bias;
    double init_std, down_init_std;
    double dropout;
  };
  struct Saved {
    Tensor u;   // [T, 2f or f]    till dgrad
    Tensor a;   // [T, f]          till wgrad; or dgrad .. wgrad where activations are not kept
    Tensor dy;  // [t, d]          till wgrad (owned by the block)
    Tensor du;  // [T, 2f or f]    dgrad .. wgrad
    Projection::Saved up, down;
  };
  Mlp(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan);

  // The result lies in scratch, placed like the stream.
  Tensor forward(Pass& p, Saved& s, Tensor h) const;
  Tensor dgrad(Pass& p, Saved& s, Tensor dy) const;
  // `h` again where the block did not keep it.
  void wgrad(Pass& p, const Saved& s, Tensor h) const;

 private:
  void activate(Pass& p, Tensor u, Tensor a) const;
  void activate_backward(Pass& p, Tensor u, Tensor da, Tensor du) const;

  Act act_;
  bool keep_;
  Boundary enter_;
  Projection up_;
  RowParallelLinear down_;
};

}  // namespace weft
