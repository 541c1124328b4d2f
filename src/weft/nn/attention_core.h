// The core of an attention layer: each query's softmax over the keys that it sees. Layers make q, k and v, and use o.
//   T tokens here, whole on tp   h, g query and key heads here   e width of a head   u of its values
#pragma once
#include <memory>

#include "weft/nn/stream_dropout.h"

namespace weft {

// q [T, h e]; k [T, g e]; v [T, g u]   compute; the gradients of these alike.
struct QueryKeyValue {
  Tensor q, k, v;
};

// Over the documents of whole sequences (MicroBatch::spans), of which the ranks of cp have a part each. Temporaries lie
// in scratch, as many as the shapes say, whatever the documents are.
class AttentionCore {
 public:
  virtual ~AttentionCore() = default;
  const AttentionHeads& heads() const { return heads_; }
  // Writes o [T, h u] and lse [T, h] (stat), the log-sum-exp of each query's scaled scores (ops/ops.h, Attention).
  virtual void forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const = 0;
  struct Saved {
    Tensor o, lse;
  };
  // Writes `d`, from the operands and results of forward and the gradient of o.
  virtual void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                        const QueryKeyValue& d) const = 0;

 protected:
  // The op on the rows of these tensors, as `spans` number them, and its adjoint.
  void attend(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse, std::span<const AttentionSpan> spans) const;
  void attend_backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d,
                       std::span<const AttentionSpan> spans) const;
  AttentionCore(const AttentionHeads& heads, const StreamDropout& dropout) : heads_(heads), dropout_(dropout) {}
  const AttentionHeads heads_;
  const StreamDropout dropout_;
};

// `dropout`: of probabilities.
std::unique_ptr<AttentionCore> make_attention_core(const ContextPlan& plan, const AttentionHeads& heads,
                                                   const StreamDropout& dropout);
// For groups of so many neighbours that have exchanged their rows for heads, these of them here. Groups of one may
// gather.
std::unique_ptr<AttentionCore> make_group_core(ContextPlan::Keys keys, int64_t group, const AttentionHeads& heads,
                                               const StreamDropout& dropout);

}  // namespace weft
