#include "weft/nn/attention_core.h"

#include "weft/nn/exchanged_attention.h"
#include "weft/nn/gathered_attention.h"
#include "weft/nn/ring_attention.h"

namespace weft {
namespace {

// All keys are here.
class LocalAttention final : public AttentionCore {
 public:
  LocalAttention(const AttentionHeads& heads, const StreamDropout& dropout) : AttentionCore(heads, dropout) {}

  void forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const override {
    p.be.run(Attention{.q = in.q,
                       .k = in.k,
                       .v = in.v,
                       .o = o,
                       .lse = lse,
                       .spans = p.batch.spans,
                       .heads = heads_,
                       .dropout = dropout_.spec(p)});
  }
  void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d) const override {
    p.be.run(AttentionBackward{.q = in.q,
                               .k = in.k,
                               .v = in.v,
                               .o = s.o,
                               .lse = s.lse,
                               .dout = dout,
                               .dq = d.q,
                               .dk = d.k,
                               .dv = d.v,
                               .spans = p.batch.spans,
                               .heads = heads_,
                               .dropout = dropout_.spec(p)});
  }
};

}  // namespace

std::unique_ptr<AttentionCore> make_attention_core(const ContextPlan& plan, const AttentionHeads& heads,
                                                   const StreamDropout& dropout) {
  switch (plan.keys) {
    case ContextPlan::Keys::gathered:
      return std::make_unique<GatheredAttention>(heads, dropout);
    case ContextPlan::Keys::exchanged:
      return std::make_unique<ExchangedAttention>(heads, dropout);
    case ContextPlan::Keys::ring:
      return std::make_unique<RingAttention>(heads, dropout);
    case ContextPlan::Keys::here:
      break;
  }
  return std::make_unique<LocalAttention>(heads, dropout);
}

}  // namespace weft
