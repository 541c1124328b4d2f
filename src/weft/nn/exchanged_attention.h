// Attention of ranks that exchange their shares of the sequences for shares of the heads.
#pragma once
#include "weft/nn/attention_core.h"
#include "weft/sharding/head_exchange.h"

namespace weft {

// An all-to-all among neighbours of cp gives each of them all their rows of its heads; the core of the groups attends
// (which is that of one rank where the group is all of cp); a second all-to-all gives the results back. Backward does
// so with the operands, results and gradients. Query and key heads are multiples of the neighbours.
class ExchangedAttention final : public AttentionCore {
 public:
  ExchangedAttention(const ContextPlan& plan, const AttentionHeads& heads, const StreamDropout& dropout)
      : AttentionCore(heads, dropout), plan_(plan), exchange_(plan.head_ranks) {}
  void forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const override;
  void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d) const override;

 private:
  std::unique_ptr<AttentionCore> core_of_share(const Pass& p) const;
  ContextPlan plan_;
  HeadExchange exchange_;
};

}  // namespace weft
