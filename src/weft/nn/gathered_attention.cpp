#include "weft/nn/gathered_attention.h"

#include <array>

namespace weft {
namespace {

WholeSequences::At at(const Pass& p) { return {p.be, p.mesh, p.batch.sequences, *p.scratch}; }

// Keys beside values, of whole sequences.   [n T, g e] each
struct KeysValues {
  Tensor k, v;
  KeysValues(const Tensor& both, const QueryKeyValue& like)
      : k(both.slice_cols(0, like.k.cols())), v(both.slice_cols(like.k.cols(), like.v.cols())) {}
};

// f(part) for each chunk of each sequence here, over the keys of the sequence.
template <class F>
void for_parts(const Pass& p, int64_t window, const F& f) {
  const SequenceCut& cut = p.batch.sequences;
  for (const TokenRows& queries : token_rows(p.batch, cut.ranks.rank)) {
    const int64_t first = queries.tokens.first / cut.seq_length * cut.seq_length;
    if (queries.tokens.count > 0) f(part_of(p.batch.spans, queries, {{first, cut.seq_length}, first}, window).value());
  }
}

}  // namespace

void GatheredAttention::forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const {
  Scope temporaries(*p.scratch);
  const KeysValues all(sequences_.gather(at(p), std::array{in.k, in.v}), in);
  for_parts(p, heads_.window, [&](const AttentionPart& part) {
    p.be.run(Attention{.q = in.q.slice_rows(part.q.first, part.q.count),
                       .k = all.k.slice_rows(part.k.first, part.k.count),
                       .v = all.v.slice_rows(part.k.first, part.k.count),
                       .o = o.slice_rows(part.q.first, part.q.count),
                       .lse = lse.slice_rows(part.q.first, part.q.count),
                       .spans = part.spans,
                       .heads = heads_,
                       .dropout = dropout_.spec(p)});
  });
}

// The first chunk of a sequence writes the gradients of the keys that it sees, which the last one's are added to.
void GatheredAttention::backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                                 const QueryKeyValue& d) const {
  Scope temporaries(*p.scratch);
  const Tensor both = sequences_.gather(at(p), std::array{in.k, in.v});
  const KeysValues all(both, in);
  const Tensor sum = p.compute(p.scratch, both.shape, both.place.dual());
  p.be.run(Zero{.x = sum});
  const auto rows = [](const Tensor& x, const Run& run) { return x.slice_rows(run.first, run.count); };
  {
    Scope of_a_part(*p.scratch);
    const Tensor one = p.compute(p.scratch, {p.batch.sequences.seq_length, both.cols()}, sum.place);
    for_parts(p, heads_.window, [&](const AttentionPart& part) {
      const Tensor here = one.slice_rows(0, part.k.count), there = rows(sum, part.k);
      const KeysValues dkv(here, in);
      p.be.run(AttentionBackward{.q = rows(in.q, part.q),
                                 .k = rows(all.k, part.k),
                                 .v = rows(all.v, part.k),
                                 .o = rows(s.o, part.q),
                                 .lse = rows(s.lse, part.q),
                                 .dout = rows(dout, part.q),
                                 .dq = rows(d.q, part.q),
                                 .dk = dkv.k,
                                 .dv = dkv.v,
                                 .spans = part.spans,
                                 .heads = heads_,
                                 .dropout = dropout_.spec(p)});
      p.be.run(Add{.x = there, .y = here, .out = there});
    });
  }
  sequences_.scatter_sums(at(p), sum, std::array{d.k, d.v});
}

}  // namespace weft
