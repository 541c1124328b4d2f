// Attention of ranks whose keys and values go around.
#pragma once
#include <functional>

#include "weft/nn/attention_core.h"
#include "weft/nn/attention_part.h"

namespace weft {

// Forward: k and v of all ranks pass by each, while it attends to those that are here, and what it has so far is merged
// with that by their log-sum-exp, in stat (Liu et al. 2023). Backward: so again, and the gradients of k and v travel
// one turn behind them, in stat, to which each rank adds its own.
//
// The ranks are groups of `group` neighbours, of which a rank has some of the heads (ExchangedAttention).
class RingAttention final : public AttentionCore {
 public:
  RingAttention(const AttentionHeads& heads, const StreamDropout& dropout, int64_t group)
      : AttentionCore(heads, dropout), group_(group) {}
  void forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const override;
  void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d) const override;

 private:
  using VisitPart = std::function<void(const AttentionPart&, bool first)>;
  void for_parts(const Pass& p, int64_t origin, const VisitPart& f) const;
  SequenceCut cut(const Pass& p) const { return p.batch.sequences.of_groups(group_); }
  int64_t group_;
};

}  // namespace weft
