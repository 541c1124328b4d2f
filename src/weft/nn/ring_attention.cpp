#include "weft/nn/ring_attention.h"

#include <utility>

#include "weft/sharding/sequence_ring.h"

namespace weft {
namespace {

// What is under way, and what is here.
struct Travelling {
  KeysValues now, next;
  Travelling(Pass& p, DType dtype, const QueryKeyValue& like)
      : now(make(p, dtype, like), like), next(make(p, dtype, like), like) {}
  static Tensor make(Pass& p, DType dtype, const QueryKeyValue& like) {
    return p.scratch->alloc(dtype, {like.k.rows(), like.k.cols() + like.v.cols()}, like.k.place);
  }
};

}  // namespace

// f(part, whether it is the first that its queries see) for what the queries here see of the keys that began at a rank.
void RingAttention::for_parts(const Pass& p, int64_t origin, const VisitPart& f) const {
  const SequenceCut groups = cut(p);
  const int64_t here = groups.ranks.rank;
  const std::vector<TokenRows> queries = token_rows(p.batch, groups, here), keys = token_rows(p.batch, groups, origin);
  for (const bool first : {true, false}) {
    for (size_t i = 0; i < queries.size(); ++i) {
      for (const size_t j : {i / 2 * 2, i / 2 * 2 + 1}) {  // the two runs of the same sequence
        if (first != (origin == here && i == j)) continue;
        if (const auto part = part_of(p.batch.spans, queries[i], keys[j], heads_.window)) f(*part, first);
      }
    }
  }
}

void RingAttention::forward(Pass& p, const QueryKeyValue& in, Tensor o, Tensor lse) const {
  Scope temporaries(*p.scratch);
  const SequenceRing ring(p.mesh, p.batch.sequences, group_);
  Travelling kv(p, in.k.dtype, in);
  p.be.run(Copy{.from = in.k, .to = kv.now.k});
  p.be.run(Copy{.from = in.v, .to = kv.now.v});
  const bool widens = o.dtype != lse.dtype;
  const Tensor sum = widens ? p.stat(p.scratch, o.shape, o.place) : o;
  const Tensor other = p.compute(p.scratch, o.shape, o.place), other_lse = p.stat(p.scratch, lse.shape, lse.place);
  const int64_t turns = cut(p).ranks.size;
  for (int64_t turn = 0; turn < turns; ++turn) {
    SequenceRing::Turn coming;
    if (turn + 1 < turns) coming = ring.begin(kv.now.both, kv.next.both);
    for_parts(p, ring.origin(turn), [&](const AttentionPart& part, bool first) {
      const Run here = first ? part.q : Run{0, part.q.count};
      const Tensor part_o = rows_of(first ? o : other, here), part_lse = rows_of(first ? lse : other_lse, here);
      attend(p, {rows_of(in.q, part.q), rows_of(kv.now.k, part.k), rows_of(kv.now.v, part.k)}, part_o, part_lse,
             part.spans);
      if (!first)
        p.be.run(
            AttentionMerge{.o = part_o, .lse = part_lse, .sum = rows_of(sum, part.q), .sum_lse = rows_of(lse, part.q)});
      else if (widens)
        p.be.run(Copy{.from = part_o, .to = rows_of(sum, part.q)});
    });
    coming.wait();
    std::swap(kv.now, kv.next);
  }
  if (widens) p.be.run(Copy{.from = sum, .to = o});
}

// Gradients of keys are sent when this rank has added its own; they come one turn later, while it computes those of the
// next keys. Of its own keys it leaves a part to the end, when the last of them are on their way home.
void RingAttention::backward(Pass& p, const QueryKeyValue& in, const Saved& s, Tensor dout,
                             const QueryKeyValue& d) const {
  Scope temporaries(*p.scratch);
  const SequenceRing ring(p.mesh, p.batch.sequences, group_);
  Travelling kv(p, in.k.dtype, in), mine(p, s.lse.dtype, d);
  const KeysValues came(Travelling::make(p, s.lse.dtype, d), d), part_kv(Travelling::make(p, d.k.dtype, d), d);
  const Tensor part_q = p.compute(p.scratch, {d.q.rows(), d.q.cols()}, d.q.place);
  const bool widens = d.q.dtype != s.lse.dtype;
  const Tensor sum_q = widens ? p.stat(p.scratch, part_q.shape, d.q.place) : d.q;
  const Tensor wide_q = widens ? p.stat(p.scratch, part_q.shape, d.q.place) : Tensor{};
  const Tensor wide_kv = widens ? Travelling::make(p, s.lse.dtype, d) : Tensor{};
  p.be.run(Copy{.from = in.k, .to = kv.now.k});
  p.be.run(Copy{.from = in.v, .to = kv.now.v});
  p.be.run(Zero{.x = sum_q});
  const auto add_part = [&](const AttentionPart& part, const auto& keys) {
    const Run q{0, part.q.count}, k{0, part.k.count};
    attend_backward(p, {rows_of(in.q, part.q), rows_of(keys.k, part.k), rows_of(keys.v, part.k)}, of_part(s, part),
                    rows_of(dout, part.q), {rows_of(part_q, q), rows_of(part_kv.k, k), rows_of(part_kv.v, k)},
                    part.spans);
    add_wide(p, rows_of(part_q, q), rows_of(sum_q, part.q), wide_q);
    add_wide(p, rows_of(part_kv.both, k), rows_of(mine.now.both, part.k), wide_kv);
  };
  const int64_t turns = cut(p).ranks.size;
  SequenceRing::Turn gradients;
  for (int64_t turn = 0; turn < turns; ++turn) {
    SequenceRing::Turn coming;
    if (turn + 1 < turns) coming = ring.begin(kv.now.both, kv.next.both);
    p.be.run(Zero{.x = mine.now.both});
    for_parts(p, ring.origin(turn), [&](const AttentionPart& part, bool first) {
      if (turn > 0 || first) add_part(part, kv.now);
    });
    gradients.wait();
    if (turn > 0) p.be.run(Add{.x = mine.now.both, .y = came.both, .out = mine.now.both});
    gradients = ring.begin(mine.now.both, came.both);
    std::swap(mine.now, mine.next);
    coming.wait();
    std::swap(kv.now, kv.next);
  }
  p.be.run(Zero{.x = mine.now.both});
  for_parts(p, ring.origin(0), [&](const AttentionPart& part, bool first) {
    if (!first) add_part(part, in);
  });
  gradients.wait();
  const KeysValues& home = turns > 1 ? came : mine.next;
  p.be.run(Add{.x = home.both, .y = mine.now.both, .out = mine.now.both});
  p.be.run(Copy{.from = mine.now.k, .to = d.k});
  p.be.run(Copy{.from = mine.now.v, .to = d.v});
  if (widens) p.be.run(Copy{.from = sum_q, .to = d.q});
}

}  // namespace weft
