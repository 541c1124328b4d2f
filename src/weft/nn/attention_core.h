// The core of an attention layer: each query's softmax over the keys that it sees. Layers make q, k and v, and use o.
//   T tokens, whole on tp   h, g query and key heads here   e width of a head
#pragma once
#include <string>

#include "weft/nn/stream_dropout.h"

namespace weft {

// q [T, h e]; k, v [T, g e]   compute; the gradients of these alike.
struct QueryKeyValue {
  Tensor q, k, v;
};

class AttentionCore {
 public:
  // `name` keys the random numbers of dropout.
  AttentionCore(const std::string& name, const AttentionHeads& heads, double dropout)
      : heads_(heads), dropout_(name, dropout) {}

  const AttentionHeads& heads() const { return heads_; }
  // Writes o [T, h e] and lse [T, h] (stat): the op Attention over the spans of the micro-batch.
  void forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const;
  // Writes `d`, from the operands and results of forward and the gradient of o.
  struct Saved {
    Tensor o, lse;
  };
  void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d) const;

 private:
  AttentionHeads heads_;
  StreamDropout dropout_;
};

}  // namespace weft
