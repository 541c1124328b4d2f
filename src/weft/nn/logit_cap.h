// A soft cap on logits, where a model has one.   c tokens   v classes here
#pragma once
#include "weft/nn/pass.h"

namespace weft {

class LogitCap {
 public:
  explicit LogitCap(double cap) : cap_(cap) {}  // 0: none
  // Whether gradients are computed from the capped logits, which must then stay until `backward`.
  bool keeps_logits() const { return cap_ > 0; }
  // logits [c, v] stat, in place.
  void forward(Pass& p, Tensor logits) const {
    if (cap_ > 0) p.be.run(SoftCap{.x = logits, .y = logits, .cap = cap_});
  }
  // dlogits [c, v], in place: the gradient of what is capped from that of the capped logits.
  void backward(Pass& p, Tensor logits, Tensor dlogits) const {
    if (cap_ > 0) p.be.run(SoftCapBackward{.y = logits, .dy = dlogits, .dx = dlogits, .cap = cap_});
  }

 private:
  double cap_;
};

}  // namespace weft
