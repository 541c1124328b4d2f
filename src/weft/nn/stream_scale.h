// A constant factor on the stream.   t tokens here, d width of the stream
#pragma once
#include "weft/nn/pass.h"

namespace weft {

class StreamScale {
 public:
  explicit StreamScale(double factor) : factor_(factor) {}

  // x [t, d], in place.
  void forward(Pass& p, Tensor x) const {
    if (factor_ != 1) p.be.run(Axpby{.x = x, .out = x, .a = factor_});
  }
  // The gradient of x: dy itself where the factor is 1, else in `out`.
  Tensor backward(Pass& p, Tensor dy, Arena& out) const {
    if (factor_ == 1) return dy;
    Tensor dx = p.compute(&out, {dy.rows(), dy.cols()}, dy.place);
    p.be.run(Axpby{.x = dy, .out = dx, .a = factor_});
    return dx;
  }

 private:
  double factor_;
};

}  // namespace weft
