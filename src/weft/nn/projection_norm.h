// RMS norm of queries or keys as a projection made them.   T tokens, whole on tp   n columns here   e head width
#pragma once
#include <string>

#include "weft/nn/pass.h"
#include "weft/sharding/boundary.h"
#include "weft/sharding/param_store.h"

namespace weft {

// Normalizes each head for itself, with one weight [e] for all; or all heads of a token at once, with a weight for each
// of their numbers: then ranks that have other heads exchange one sum a token.
class ProjectionNorm {
 public:
  enum class Over : uint8_t { none, heads, all };
  struct Spec {
    Over over;
    int64_t heads, head_dim;  // of the whole model
    Part part;                // how the projection's rows are cut
    double eps, offset;       // scaled by offset + w
  };
  struct Saved {
    Tensor rstd;  // [T, heads here] or [T, 1]        till dgrad
    Tensor dw;    // [e], or of the heads here  stat  dgrad .. wgrad
  };
  ProjectionNorm(ParamStore& params, const std::string& name, const Spec& spec);
  explicit operator bool() const { return w_ != nullptr; }  // whether there is one

  // y = norm(x); x [T, n] must live till dgrad. Statistics lie in `home`.
  void forward(Pass& p, Saved& s, Tensor x, Tensor y, Arena* home) const;
  // dx [T, n], which holds the gradient of y, in place.
  void dgrad(Pass& p, Saved& s, Tensor x, Tensor dx) const;
  void wgrad(Pass& p, const Saved& s) const;

 private:
  Tensor sum_over_columns(Pass& p, Tensor x, Tensor y, Tensor w) const;

  Spec spec_;
  Param* w_ = nullptr;
  Boundary join_;
};

}  // namespace weft
