#include "weft/nn/gathered_attention.h"

#include <array>

namespace weft {
namespace {

// f(part) for each run of each sequence here, over the keys of the sequence.
template <class F>
void for_whole_parts(const Pass& p, int64_t window, const F& f) {
  const SequenceCut& cut = p.batch.sequences;
  for (const TokenRows& queries : token_rows(p.batch, cut.ranks.rank)) {
    const int64_t first = queries.tokens.first / cut.seq_length * cut.seq_length;
    if (queries.tokens.count > 0) f(part_of(p.batch.spans, queries, {{first, cut.seq_length}, first}, window).value());
  }
}

}  // namespace

void GatheredAttention::forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const {
  Scope temporaries(*p.scratch);
  const KeysValues all(sequences_.gather(sequences_of(p), std::array{in.k, in.v}), in);
  for_whole_parts(p, heads_.window, [&](const AttentionPart& part) {
    p.be.run(Attention{.q = rows_of(in.q, part.q),
                       .k = rows_of(all.k, part.k),
                       .v = rows_of(all.v, part.k),
                       .o = rows_of(o, part.q),
                       .lse = rows_of(lse, part.q),
                       .spans = part.spans,
                       .heads = heads_,
                       .dropout = dropout_.spec(p)});
  });
}

// Queries of both runs of a sequence see its first keys, so that gradients of keys are added.
void GatheredAttention::backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                                 const QueryKeyValue& d) const {
  Scope temporaries(*p.scratch);
  const Tensor both = sequences_.gather(sequences_of(p), std::array{in.k, in.v});
  const KeysValues all(both, in);
  const Tensor sum = p.compute(p.scratch, both.shape, both.place.dual());
  p.be.run(Zero{.x = sum});
  {
    Scope of_a_part(*p.scratch);
    const Tensor one = p.compute(p.scratch, {p.batch.sequences.seq_length, both.cols()}, sum.place);
    for_whole_parts(p, heads_.window, [&](const AttentionPart& part) {
      const Tensor here = one.slice_rows(0, part.k.count), there = rows_of(sum, part.k);
      const KeysValues dkv(here, in);
      p.be.run(AttentionBackward{.q = rows_of(in.q, part.q),
                                 .k = rows_of(all.k, part.k),
                                 .v = rows_of(all.v, part.k),
                                 .o = rows_of(s.o, part.q),
                                 .lse = rows_of(s.lse, part.q),
                                 .dout = rows_of(dout, part.q),
                                 .dq = rows_of(d.q, part.q),
                                 .dk = dkv.k,
                                 .dv = dkv.v,
                                 .spans = part.spans,
                                 .heads = heads_,
                                 .dropout = dropout_.spec(p)});
      p.be.run(Add{.x = there, .y = here, .out = there});
    });
  }
  sequences_.scatter_sums(sequences_of(p), sum, std::array{d.k, d.v});
}

}  // namespace weft
