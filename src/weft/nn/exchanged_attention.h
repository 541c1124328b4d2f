// Attention of ranks that exchange their shares of the sequences for shares of the heads.
#pragma once
#include "weft/nn/attention_core.h"
#include "weft/sharding/head_exchange.h"

namespace weft {

// An all-to-all gives each rank of cp the whole sequences of its heads; a second one gives the results back. Backward
// does so with the operands, results and gradients. Query and key heads are multiples of the ranks.
class ExchangedAttention final : public AttentionCore {
 public:
  ExchangedAttention(const AttentionHeads& heads, const StreamDropout& dropout) : AttentionCore(heads, dropout) {}
  void forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const override;
  void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d) const override;

 private:
  AttentionHeads share_of_heads(const Pass& p) const;
  HeadExchange heads_over_;
};

}  // namespace weft
