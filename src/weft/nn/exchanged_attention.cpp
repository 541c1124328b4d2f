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

// Which heads a rank has it knows from its place on cp.
std::unique_ptr<AttentionCore> ExchangedAttention::core_of_share(const Pass& p) const {
  const int64_t n = plan_.head_ranks;
  AttentionHeads h = heads_;
  h.q /= n;
  h.kv /= n;
  h.first += p.batch.sequences.within_group(n).ranks.rank * h.q;
  return make_group_core(plan_.keys, n, h, dropout_);
}

void ExchangedAttention::forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const {
  Scope temporaries(*p.scratch);
  const int64_t n = plan_.head_ranks;
  const std::array parts{in.q, in.k, in.v};
  const std::vector<Tensor> all = shares(exchange_.to_heads(sequences_of(p), parts), parts, n);
  const Tensor all_o = p.compute(p.scratch, {all[0].rows(), o.cols() / n}, all[0].place);
  const Tensor all_lse = p.stat(p.scratch, {all[0].rows(), lse.cols() / n}, all[0].place);
  core_of_share(p)->forward(p, {all[0], all[1], all[2]}, all_o, all_lse);
  exchange_.to_rows(sequences_of(p), all_o, std::array{o});
  exchange_.to_rows(sequences_of(p), all_lse, std::array{lse});
}

void ExchangedAttention::backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                                  const QueryKeyValue& d) const {
  Scope temporaries(*p.scratch);
  const int64_t n = plan_.head_ranks;
  const std::array parts{in.q, in.k, in.v, s.o, dout};
  const std::vector<Tensor> all = shares(exchange_.to_heads(sequences_of(p), parts), parts, n);
  const Tensor lse = exchange_.to_heads(sequences_of(p), std::array{s.lse});
  const std::array gradients{d.q, d.k, d.v};
  const int64_t cols = (d.q.cols() + d.k.cols() + d.v.cols()) / n;
  const Tensor sum = p.compute(p.scratch, {all[0].rows(), cols}, all[0].place.dual());
  const std::vector<Tensor> dx = shares(sum, gradients, n);
  core_of_share(p)->backward(p, {all[0], all[1], all[2]}, {all[3], lse}, all[4], {dx[0], dx[1], dx[2]});
  exchange_.to_rows(sequences_of(p), sum, gradients);
}

}  // namespace weft
