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
  judge.that(op.q, h.window >= 0, "a window is not negative");
  judge.that(op.q, op.dropout.p >= 0 && op.dropout.p < 1, "dropout is in [0, 1)");
  judge.that(op.q, op.dropout.p == 0 || (h.first >= 0 && h.first + h.q <= h.total), "its heads are not among `total`");
}

// Queries and keys agree on an axis (other sequences, other heads, or equal work), or cut queries see whole keys, whose
// gradient is then Partial.
template <class Op>
void check_attention(const Op& op) {
  const Judge judge(op);
  judge.exist({&op.q, &op.k, &op.v, &op.o});
  judge.compute(op.q);
  judge.matrix(op.k, op.k.rows(), op.k.cols(), op.q.dtype);
  judge.like(op.q, {&op.o});
  judge.like(op.k, {&op.v});
  check_heads(op);
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

}  // namespace

// Linear in x, and each head for itself: however x is held.
void check(const Rope& op) {
  const Judge judge(op);
  judge.compute(op.x);
  const int64_t e = op.table.cols();
  judge.that(op.table, op.table && e > 0 && e % 2 == 0 && op.x.cols() % e == 0,
             "its width is even and divides the width of x");
  judge.matrix(op.table, op.table.rows(), e, stat_of(op.x.dtype));
  judge.constant(op.table);
  judge.indexes(op.positions, op.x.rows(), DType::i32, op.x.place);
}

void check(const Attention& op) { check_attention(op); }

void check(const AttentionBackward& op) {
  const Judge judge(op);
  check_attention(op);
  judge.exist({&op.dout, &op.dq, &op.dk, &op.dv});
  judge.like(op.q, {&op.dout, &op.dq});
  judge.like(op.k, {&op.dk, &op.dv});
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

}  // namespace weft::rules
