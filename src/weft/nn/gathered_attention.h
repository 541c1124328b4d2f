// Attention of ranks that each bring together the keys and values of whole sequences.
#pragma once
#include "weft/nn/attention_core.h"
#include "weft/nn/attention_part.h"

namespace weft {

// Forward all-gathers k and v over cp; backward does so again, and reduce-scatters their gradients. A rank then
// attends to all keys that its queries see, at once: nothing is merged.
class GatheredAttention final : public AttentionCore {
 public:
  GatheredAttention(const AttentionHeads& heads, const StreamDropout& dropout) : AttentionCore(heads, dropout) {}
  void forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const override;
  void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d) const override;

 private:
  WholeSequences sequences_;
};

}  // namespace weft
