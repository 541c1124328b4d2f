// Dropout of what a sublayer adds to the stream.   t tokens here, d width of the stream
#pragma once
#include <string_view>

#include "weft/base/rng.h"
#include "weft/nn/pass.h"

namespace weft {

// Which elements are zeroed is a function of (step, name, token, column): a recomputed or re-laid-out run draws the
// same.
class StreamDropout {
 public:
  StreamDropout(std::string_view name, double p) : name_key_(rng_key(0, name)), p_(p) {}

  // x [t, d], in place.
  void forward(Pass& p, Tensor x) const {
    if (active(p)) run(p, x, x);
  }
  // The gradient of x: dy itself where nothing is dropped, else in `out`.
  Tensor backward(Pass& p, Tensor dy, Arena& out) const {
    if (!active(p)) return dy;
    Tensor dx = p.compute(&out, {dy.rows(), dy.cols()}, dy.place);
    run(p, dy, dx);
    return dx;
  }
  // For attention, which drops probabilities itself.
  DropoutSpec spec(const Pass& p) const {
    return active(p) ? DropoutSpec{p_, rng_key(p.dropout_key, name_key_)} : DropoutSpec{};
  }

 private:
  bool active(const Pass& p) const { return p_ > 0 && p.dropout_key != 0; }
  void run(Pass& p, Tensor x, Tensor y) const {
    p.be.run(
        Dropout{.x = x, .y = y, .tokens = p.batch.stream_tokens(), .dropout = spec(p), .first = 0, .total = x.cols()});
  }
  uint64_t name_key_;
  double p_;
};

}  // namespace weft
