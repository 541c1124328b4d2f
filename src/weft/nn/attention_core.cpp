#include "weft/nn/attention_core.h"

namespace weft {

void AttentionCore::forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const {
  p.be.run(Attention{.q = in.q,
                     .k = in.k,
                     .v = in.v,
                     .o = o,
                     .lse = lse,
                     .spans = p.batch.spans,
                     .heads = heads_,
                     .dropout = dropout_.spec(p)});
}

void AttentionCore::backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                             const QueryKeyValue& d) const {
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

}  // namespace weft
