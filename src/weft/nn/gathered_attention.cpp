#include "weft/nn/gathered_attention.h"

#include <array>

namespace weft {
namespace {

// f(part) for each run of each sequence here, over the keys of the sequence.
template <class F>
void for_whole_parts(const Pass& p, int64_t window, const F& f) {
  const SequenceCut& cut = p.batch.sequences;
  for (const TokenRows& queries : token_rows(p.batch, cut, cut.ranks.rank)) {
    const int64_t first = queries.tokens.first / cut.seq_length * cut.seq_length;
    if (queries.tokens.count > 0) f(part_of(p.batch.spans, queries, {{first, cut.seq_length}, first}, window).value());
  }
}

}  // namespace

void GatheredAttention::forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const {
  Scope temporaries(*p.scratch);
  const KeysValues all(sequences_.gather(sequences_of(p), std::array{in.k, in.v}), in);
  for_whole_parts(p, heads_.window, [&](const AttentionPart& part) {
    attend(p, {rows_of(in.q, part.q), rows_of(all.k, part.k), rows_of(all.v, part.k)}, rows_of(o, part.q),
           rows_of(lse, part.q), part.spans);
  });
}

// Queries of both runs of a sequence see its first keys, so that gradients of keys are added: in stat, as all sums are.
void GatheredAttention::backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                                 const QueryKeyValue& d) const {
  Scope temporaries(*p.scratch);
  const Tensor both = sequences_.gather(sequences_of(p), std::array{in.k, in.v});
  const KeysValues all(both, in);
  const Tensor sum = p.stat(p.scratch, both.shape, both.place.dual());
  p.be.run(Zero{.x = sum});
  {
    Scope of_a_part(*p.scratch);
    const Tensor one = p.compute(p.scratch, {p.batch.sequences.seq_length, both.cols()}, sum.place);
    const Tensor wide = one.dtype == sum.dtype ? Tensor{} : p.stat(p.scratch, one.shape, sum.place);
    for_whole_parts(p, heads_.window, [&](const AttentionPart& part) {
      const Tensor here = one.slice_rows(0, part.k.count);
      const KeysValues dkv(here, in);
      attend_backward(p, {rows_of(in.q, part.q), rows_of(all.k, part.k), rows_of(all.v, part.k)}, of_part(s, part),
                      rows_of(dout, part.q), {rows_of(d.q, part.q), dkv.k, dkv.v}, part.spans);
      add_wide(p, here, rows_of(sum, part.k), wide);
    });
  }
  sequences_.scatter_sums(sequences_of(p), sum, std::array{d.k, d.v});
}

}  // namespace weft
