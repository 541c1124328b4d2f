// Normalization of each token of the stream.   t tokens here, d width of the stream
#pragma once
#include <string>

#include "weft/nn/pass.h"
#include "weft/sharding/param_store.h"

namespace weft {

// Layer norm with a bias, or RMS norm; optionally fused with the residual addition before it.
//   x, y, dy, dx [t, d]  placed like the stream, never cut along d
//   w, b         [d]     Invariant on an Invariant stream, else Replicate
class StreamNorm {
 public:
  struct Spec {
    int64_t width;
    bool layer_norm;  // else RMS norm
    double eps;
    Spmd whole;
    double offset = 0;  // of w: rows are scaled by offset + w, and w begins at 0 where there is one
  };
  struct Saved {
    Tensor x;       // [t, d]  what was normalized                till dgrad (owned by the caller)
    Tensor mean;    // [t]     layer norm only                    till dgrad
    Tensor rstd;    // [t]                                        till dgrad
    Tensor dw, db;  // [d]   stat                               dgrad .. wgrad
  };
  StreamNorm(ParamStore& params, const std::string& name, const Spec& spec);

  void forward(Pass& p, Saved& s, Tensor x, Tensor y) const { forward_add(p, s, x, {}, x, y); }
  // sum = x + delta, y = norm(sum). `sum` must live till dgrad.
  void forward_add(Pass& p, Saved& s, Tensor x, Tensor delta, Tensor sum, Tensor y) const;
  void again(Pass& p, const Saved& s, Tensor y) const;  // the same y
  // dx = carry + what comes through the norm.
  void dgrad(Pass& p, Saved& s, Tensor dy, Tensor carry, Tensor dx) const;
  void wgrad(Pass& p, const Saved& s) const;  // adds to w.grad, b.grad what dgrad has made

 private:
  Param* w_;
  Param* b_ = nullptr;
  double eps_, offset_;
};

}  // namespace weft
