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
    attend(p, in, o, lse, p.batch.spans);
  }
  void backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout, const QueryKeyValue& d) const override {
    attend_backward(p, in, s, dout, d, p.batch.spans);
  }
};

}  // namespace

void AttentionCore::attend(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse,
                           std::span<const AttentionSpan> spans) const {
  p.be.run(Attention{.q = in.q,
                     .k = in.k,
                     .v = in.v,
                     .o = o,
                     .lse = lse,
                     .spans = spans,
                     .heads = heads_,
                     .dropout = dropout_.spec(p)});
}

void AttentionCore::attend_backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                                    const QueryKeyValue& d, std::span<const AttentionSpan> spans) const {
  p.be.run(AttentionBackward{.q = in.q,
                             .k = in.k,
                             .v = in.v,
                             .o = s.o,
                             .lse = s.lse,
                             .dout = dout,
                             .dq = d.q,
                             .dk = d.k,
                             .dv = d.v,
                             .spans = spans,
                             .heads = heads_,
                             .dropout = dropout_.spec(p)});
}

std::unique_ptr<AttentionCore> make_attention_core(const ContextPlan& plan, const AttentionHeads& heads,
                                                   const StreamDropout& dropout) {
  if (plan.head_ranks > 1) return std::make_unique<ExchangedAttention>(plan, heads, dropout);
  return make_group_core(plan.keys, 1, heads, dropout);
}

std::unique_ptr<AttentionCore> make_group_core(ContextPlan::Keys keys, int64_t group, const AttentionHeads& heads,
                                               const StreamDropout& dropout) {
  switch (keys) {
    case ContextPlan::Keys::gathered:
      return std::make_unique<GatheredAttention>(heads, dropout);
    case ContextPlan::Keys::ring:
      return std::make_unique<RingAttention>(heads, dropout, group);
    case ContextPlan::Keys::here:
      break;
  }
  return std::make_unique<LocalAttention>(heads, dropout);
}

}  // namespace weft
