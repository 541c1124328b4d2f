// Attention of ranks whose keys and values go around.
#pragma once
#include <functional>

#include "weft/nn/attention_core.h"
#include "weft/nn/attention_part.h"

namespace weft {

// Forward: k and v of all ranks pass by each, while it attends to those that are here, and what it has so far is merged
// with that by their log-sum-exp, in stat (Liu et al. 2023). Backward: so again, and the gradients of k and v travel
// one turn behind them, in stat, to which each rank adds its own.
class RingAttention final : public AttentionCore {
 public:
  RingAttention(const AttentionHeads& heads, const StreamDropout& dropout) : AttentionCore(heads, dropout) {}
  void forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const override;
  void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d) const override;

 private:
  using VisitPart = std::function<void(const AttentionPart&, bool first)>;
  void for_parts(const Pass& p, int64_t origin, const VisitPart& f) const;
};

}  // namespace weft
