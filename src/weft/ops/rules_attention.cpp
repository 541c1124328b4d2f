// Rules of attention and rotary positions.
#include <algorithm>
#include <vector>

#include "weft/ops/rules_judge.h"

namespace weft::rules {
namespace {

struct Run {
  int64_t first, count;
  int64_t end() const { return first + count; }
};
// Do runs cover all of [0, n); and if asked, no row twice?
bool cover(std::vector<Run> runs, int64_t n, bool once) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  int64_t covered = 0;
  for (const Run& r : runs) {
    if (r.first > covered || (once && r.first != covered)) return false;
    covered = std::max(covered, r.end());
  }
  return covered == n;
}

bool inside(const Run& r, int64_t n) { return r.first >= 0 && r.count > 0 && r.end() <= n; }

// The first query sees the first key, and the window of the last reaches the last key.
bool all_see_a_key(const AttentionSpan& s, int64_t window) {
  const int64_t last_query = s.q_position + s.q_count - 1, last_key = s.k_position + s.k_count - 1;
  return s.k_position <= s.q_position && (window == 0 || last_key > last_query - window);
}

template <class Op>
void check_spans(const Op& op) {
  const Judge judge(op);
  std::vector<Run> queries, keys;
  for (const AttentionSpan& s : op.spans) {
    judge.that(op.q, inside({s.q_row, s.q_count}, op.q.rows()), "a span is empty or reaches beyond it");
    judge.that(op.k, inside({s.k_row, s.k_count}, op.k.rows()), "a span is empty or reaches beyond it");
    judge.that(op.q, s.q_position >= 0 && s.k_position >= 0, "a span's positions begin at 0");
    judge.that(op.q, all_see_a_key(s, op.heads.window), "a query of a span sees no key");
    queries.push_back({s.q_row, s.q_count});
    keys.push_back({s.k_row, s.k_count});
  }
  judge.that(op.q, cover(std::move(queries), op.q.rows(), true), "every row should be in exactly one span");
  if constexpr (std::is_same_v<Op, AttentionBackward>)
    judge.that(op.k, cover(std::move(keys), op.k.rows(), false), "every row should be in a span");
}

template <class Op>
void check_heads(const Op& op) {
  const Judge judge(op);
  const AttentionHeads& h = op.heads;
  judge.that(op.q, h.q > 0 && h.dim > 0 && op.q.cols() == h.q * h.dim, "its width is not heads x head width");
  judge.that(op.k, h.kv > 0 && h.q % h.kv == 0 && op.k.cols() == h.kv * h.dim,
             "its width is not key heads x head width, or its heads do not divide those of q");
  judge.that(op.v, h.v_dim >= 0 && op.v.cols() == h.kv * h.value_dim(), "its width is not key heads x value width");
  judge.that(op.q, h.window >= 0 && h.softcap >= 0, "a window or a cap is not negative");
  judge.that(op.q, op.dropout.p >= 0 && op.dropout.p < 1, "dropout is in [0, 1)");
  judge.that(op.q, op.dropout.p == 0 || (h.first >= 0 && h.first + h.q <= h.total), "its heads are not among `total`");
}

// The heads of kv and what they share, forward or backward.
template <class Op>
void check_latent_keys(const Op& op, const Tensor& kv, const Tensor& shared, const Tensor& k, const Tensor& v) {
  const Judge judge(op);
  judge.exist({&kv, &shared, &k, &v});
  judge.compute(kv);
  const int64_t t = kv.rows(), h = op.heads, r = shared.cols();
  judge.that(k, h > 0 && k.cols() % h == 0 && k.cols() / h > r, "its width is not heads x (own and shared columns)");
  judge.that(v, h > 0 && v.cols() % h == 0 && v.cols() > 0, "its width is not heads x value width");
  judge.matrix(kv, t, k.cols() - h * r + v.cols(), kv.dtype);
  judge.matrix(shared, t, r, kv.dtype);
  judge.matrix(k, t, k.cols(), kv.dtype);
  judge.matrix(v, t, v.cols(), kv.dtype);
  judge.held_as(kv.place, {&k, &v}, "as the heads are");
}

// Queries and keys agree on an axis (other sequences, other heads, or equal work), or cut queries see whole keys, whose
// gradient is then Partial.
template <class Op>
void check_attention(const Op& op) {
  const Judge judge(op);
  judge.exist({&op.q, &op.k, &op.v, &op.o});
  judge.compute(op.q);
  judge.matrix(op.k, op.k.rows(), op.k.cols(), op.q.dtype);
  judge.matrix(op.v, op.k.rows(), op.v.cols(), op.q.dtype);
  check_heads(op);
  judge.matrix(op.o, op.q.rows(), op.heads.q * op.heads.value_dim(), op.q.dtype);
  judge.matrix(op.lse, op.q.rows(), op.heads.q, stat_of(op.q.dtype));
  check_spans(op);
  judge.not_partial(op.q, "attention of a sum over ranks that is not complete");
  judge.held_where(
      op.k,
      [&](Axis a) {
        const Spmd q = op.q.place[a], k = op.k.place[a];
        return k == q || (k == Spmd::Replicate && (q == Spmd::Shard0 || q == Spmd::Shard1));
      },
      "should be held as q is, or Replicate beside cut queries");
  judge.held_as(op.k.place, {&op.v}, "as k is");
  judge.held_as(op.q.place, {&op.o, &op.lse}, "as q is");
}

// Heads may be cut, with their sinks.
template <class Op>
void check_sinks(const Op& op) {
  const Judge judge(op);
  judge.exist({&op.sinks, &op.o, &op.lse});
  judge.compute(op.o);
  const int64_t h = op.sinks.elements();
  judge.vector(op.sinks, h, op.o.dtype);
  judge.that(op.o, h > 0 && op.o.cols() % h == 0, "its width is not heads x head width");
  judge.matrix(op.lse, op.o.rows(), h, stat_of(op.o.dtype));
  judge.not_partial(op.o, "attention of a sum over ranks that is not complete");
  judge.held_as(op.o.place, {&op.lse}, "as o is");
  judge.held(
      op.sinks, [&](Axis a) { return columns_beside(op.o.place[a]); }, "beside o");
}

}  // namespace

// Linear in x, and each head for itself: however x is held.
void check(const Rope& op) {
  const Judge judge(op);
  judge.compute(op.x);
  const int64_t r = op.table.cols(), e = op.head_dim();
  judge.that(op.table, op.table && r > 0 && r % 2 == 0, "its width is even");
  judge.that(op.x, op.first >= 0 && op.first + r <= e && op.x.cols() % e == 0,
             "its width is heads x head width, and the numbers that turn are in a head");
  judge.matrix(op.table, op.table.rows(), r, stat_of(op.x.dtype));
  judge.constant(op.table);
  judge.indexes(op.positions, op.x.rows(), DType::i32, op.x.place);
}

// Linear: however the heads are held. What they share is whole where they are cut, and its gradient a sum.
void check(const LatentKeys& op) {
  check_latent_keys(op, op.kv, op.shared, op.k, op.v);
  Judge(op).held(
      op.shared, [&](Axis a) { return op.kv.place[a] == Spmd::Shard1 ? Spmd::Replicate : op.kv.place[a]; },
      "as the heads are, or whole where they are cut");
}

void check(const LatentKeysBackward& op) {
  check_latent_keys(op, op.dkv, op.dshared, op.dk, op.dv);
  Judge(op).held(
      op.dshared, [&](Axis a) { return op.dkv.place[a] == Spmd::Shard1 ? Spmd::Partial : op.dkv.place[a]; },
      "as the heads are, or a sum where they are cut");
}

void check(const Attention& op) { check_attention(op); }

void check(const AttentionBackward& op) {
  const Judge judge(op);
  check_attention(op);
  judge.exist({&op.dout, &op.dq, &op.dk, &op.dv});
  judge.like(op.q, {&op.dq});
  judge.like(op.o, {&op.dout});
  judge.like(op.k, {&op.dk});
  judge.like(op.v, {&op.dv});
  judge.held_as(op.q.place.dual(), {&op.dout, &op.dq}, "as a gradient of q is");
  judge.held_as(op.k.place.dual(), {&op.dk, &op.dv}, "as a gradient of k is");
}

void check(const AttentionMerge& op) {
  const Judge judge(op);
  judge.exist({&op.o, &op.lse, &op.sum, &op.sum_lse});
  judge.compute(op.o);
  const int64_t rows = op.o.rows(), heads = op.lse.cols();
  judge.that(op.lse, heads > 0 && op.o.cols() % heads == 0, "its heads do not divide the width of o");
  judge.matrix(op.sum, rows, op.o.cols(), stat_of(op.o.dtype));
  for (const Tensor* lse : {&op.lse, &op.sum_lse}) judge.matrix(*lse, rows, heads, stat_of(op.o.dtype));
  judge.not_partial(op.o, "a merge of a sum over ranks that is not complete");
  judge.held_as(op.o.place, {&op.lse, &op.sum, &op.sum_lse}, "as o is");
}

void check(const AttentionSink& op) { check_sinks(op); }

void check(const AttentionSinkBackward& op) {
  const Judge judge(op);
  check_sinks(op);
  judge.exist({&op.dout});
  judge.like(op.o, {&op.dout});
  judge.vector(op.dsinks, op.sinks.elements(), stat_of(op.o.dtype));
  judge.held_as(op.o.place.dual(), {&op.dout}, "as a gradient of o is");
  judge.held_as(op.sinks.place.dual(), {&op.dsinks}, "as a gradient of sinks is");
}

}  // namespace weft::rules
