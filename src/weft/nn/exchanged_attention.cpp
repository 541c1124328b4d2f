#include "weft/nn/exchanged_attention.h"

#include <array>

#include "weft/nn/attention_part.h"

namespace weft {
namespace {

// The parts of an exchanged tensor, side by side, as wide as n-ths of these.
std::vector<Tensor> shares(const Tensor& both, std::span<const Tensor> like, int64_t n) {
  std::vector<Tensor> all;
  int64_t first = 0;
  for (const Tensor& x : like) {
    all.push_back(both.slice_cols(first, x.cols() / n));
    first += x.cols() / n;
  }
  return all;
}

}  // namespace

AttentionHeads ExchangedAttention::share_of_heads(const Pass& p) const {
  const RankOf ranks = p.batch.sequences.ranks;
  AttentionHeads h = heads_;
  h.q /= ranks.size;
  h.kv /= ranks.size;
  h.first += ranks.rank * h.q;
  return h;
}

void ExchangedAttention::forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const {
  Scope temporaries(*p.scratch);
  const int64_t n = p.batch.sequences.ranks.size;
  const std::array parts{in.q, in.k, in.v};
  const std::vector<Tensor> all = shares(heads_over_.to_heads(sequences_of(p), parts), parts, n);
  const Tensor whole_o = p.compute(p.scratch, {all[0].rows(), o.cols() / n}, all[0].place);
  const Tensor whole_lse = p.stat(p.scratch, {all[0].rows(), lse.cols() / n}, all[0].place);
  p.be.run(Attention{.q = all[0],
                     .k = all[1],
                     .v = all[2],
                     .o = whole_o,
                     .lse = whole_lse,
                     .spans = p.batch.spans,
                     .heads = share_of_heads(p),
                     .dropout = dropout_.spec(p)});
  heads_over_.to_rows(sequences_of(p), whole_o, std::array{o});
  heads_over_.to_rows(sequences_of(p), whole_lse, std::array{lse});
}

void ExchangedAttention::backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                                  const QueryKeyValue& d) const {
  Scope temporaries(*p.scratch);
  const int64_t n = p.batch.sequences.ranks.size;
  const std::array parts{in.q, in.k, in.v, s.o, dout};
  const std::vector<Tensor> all = shares(heads_over_.to_heads(sequences_of(p), parts), parts, n);
  const Tensor lse = heads_over_.to_heads(sequences_of(p), std::array{s.lse});
  const std::array gradients{d.q, d.k, d.v};
  const int64_t cols = (d.q.cols() + d.k.cols() + d.v.cols()) / n;
  const Tensor sum = p.compute(p.scratch, {all[0].rows(), cols}, all[0].place.dual());
  const std::vector<Tensor> dx = shares(sum, gradients, n);
  p.be.run(AttentionBackward{.q = all[0],
                             .k = all[1],
                             .v = all[2],
                             .o = all[3],
                             .lse = lse,
                             .dout = all[4],
                             .dq = dx[0],
                             .dk = dx[1],
                             .dv = dx[2],
                             .spans = p.batch.spans,
                             .heads = share_of_heads(p),
                             .dropout = dropout_.spec(p)});
  heads_over_.to_rows(sequences_of(p), sum, gradients);
}

}  // namespace weft
