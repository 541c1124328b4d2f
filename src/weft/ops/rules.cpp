#include "weft/ops/rules.h"

#include <algorithm>
#include <initializer_list>

namespace weft::rules {
namespace {

template <class Op>
std::string describe(const Op& op) {
  std::string text(Op::kName);
  for (const Field& f : op.fields()) {
    if (*f.tensor) text += fmt::format("  {}: {}", f.name, f.tensor->to_string());
  }
  return text;
}

template <class Op>
void require(const Op& op, bool holds, std::string_view what) {
  WEFT_CHECK(holds, "{}: {}", what, describe(op));
}
template <class Op>
void require_placement(const Op& op, bool holds, std::string_view what) {
  if (!holds) throw PlacementError(fmt::format("{}: {}", what, describe(op)));
}

bool is_compute(const Tensor& t) { return t.dtype == DType::f32 || t.dtype == DType::bf16 || t.dtype == DType::f64; }
bool is_stat(const Tensor& t) { return t.dtype == DType::f32 || t.dtype == DType::f64; }
DType stat_of(DType compute) { return compute == DType::f64 ? DType::f64 : DType::f32; }

bool same_size(const Tensor& a, const Tensor& b) { return a.rows() == b.rows() && a.cols() == b.cols(); }
bool is_vector(const Tensor& t, int64_t n) { return t && t.elements() == n && t.contiguous(); }

// All that exist have this size and dtype.
bool all_like(const Tensor& first, std::initializer_list<const Tensor*> others) {
  return std::all_of(others.begin(), others.end(),
                     [&](const Tensor* t) { return !*t || (same_size(*t, first) && t->dtype == first.dtype); });
}
bool all_placed(const Placement& p, std::initializer_list<const Tensor*> others) {
  return std::all_of(others.begin(), others.end(), [&](const Tensor* t) { return !*t || t->place == p; });
}
template <class F>
bool each_axis(F f) {
  for (int a = 0; a < kAxes; ++a)
    if (!f(Axis(a))) return false;
  return true;
}
bool none_partial(const Placement& p) {
  return each_axis([&](Axis a) { return p[a] != Spmd::Partial; });
}
// How a weight that is whole is held beside a stream held so.
Spmd whole_beside(Spmd stream) {
  return stream == Spmd::Invariant ? Spmd::Invariant : stream == Spmd::None ? Spmd::None : Spmd::Replicate;
}
// A vector of columns beside a matrix held so: cut where its columns are.
Spmd columns_beside(Spmd matrix) { return matrix == Spmd::Shard1 ? Spmd::Shard0 : whole_beside(matrix); }
// The sum over the rows of a matrix held so.
Spmd summed_rows(Spmd matrix) {
  return matrix == Spmd::Shard0 ? Spmd::Partial : matrix == Spmd::Shard1 ? Spmd::Shard0 : matrix;
}

// Which of the products' three dimensions an axis cuts.
enum class Cut { none, whole, same, m, n, k, partial };
Cut cut_of(Spmd s, Cut dim0, Cut dim1) {
  switch (s) {
    case Spmd::None:
      return Cut::none;
    case Spmd::Replicate:
      return Cut::whole;
    case Spmd::Invariant:
      return Cut::same;
    case Spmd::Shard0:
      return dim0;
    case Spmd::Shard1:
      return dim1;
    case Spmd::Partial:
      return Cut::partial;
  }
  return Cut::none;
}
struct MatmulRow {
  Cut a, b;
  Spmd out;
};
constexpr MatmulRow kMatmulRows[] = {
    {Cut::none, Cut::none, Spmd::None},        {Cut::m, Cut::whole, Spmd::Shard0},
    {Cut::whole, Cut::n, Spmd::Shard1},        {Cut::k, Cut::k, Spmd::Partial},
    {Cut::partial, Cut::whole, Spmd::Partial}, {Cut::whole, Cut::partial, Spmd::Partial},
    {Cut::same, Cut::same, Spmd::Invariant},   {Cut::whole, Cut::whole, Spmd::Replicate},
};
bool legal(const Matmul& op, Axis axis) {
  const Cut a = op.trans_a ? cut_of(op.a.place[axis], Cut::k, Cut::m) : cut_of(op.a.place[axis], Cut::m, Cut::k);
  const Cut b = op.trans_b ? cut_of(op.b.place[axis], Cut::n, Cut::k) : cut_of(op.b.place[axis], Cut::k, Cut::n);
  for (const MatmulRow& row : kMatmulRows) {
    if (row.a != a || row.b != b || row.out != op.out.place[axis]) continue;
    return !op.bias || (row.out != Spmd::Partial && op.bias.place[axis] == columns_beside(row.out));
  }
  return false;
}

template <class Op>
void check_attention(const Op& op) {
  const AttentionHeads& h = op.heads;
  require(op, is_compute(op.q) && all_like(op.k, {&op.v}) && op.k.dtype == op.q.dtype, "q, k, v differ");
  require(op, h.q > 0 && h.kv > 0 && h.dim > 0 && h.q % h.kv == 0 && h.window >= 0, "heads");
  require(op, op.q.cols() == h.q * h.dim && op.k.cols() == h.kv * h.dim, "widths are not heads x head width");
  require(op, op.lse && op.lse.rows() == op.q.rows() && op.lse.cols() == h.q && op.lse.dtype == stat_of(op.q.dtype),
          "lse");
  int64_t covered = 0;
  for (const AttentionSpan& s : op.spans) {
    require(op,
            s.q_row >= 0 && s.q_row + s.q_count <= op.q.rows() && s.k_row >= 0 && s.k_row + s.k_count <= op.k.rows(),
            "a span is outside");
    covered += s.q_count;
  }
  require(op, covered == op.q.rows(), "spans do not cover the queries");
  require_placement(op,
                    none_partial(op.q.place) && none_partial(op.k.place) && all_placed(op.q.place, {&op.o, &op.lse}) &&
                        op.v.place == op.k.place,
                    "attention of sums, or placed apart");
  require_placement(op, each_axis([&](Axis a) {
                      return op.k.place[a] == op.q.place[a] ||
                             (op.q.place[a] == Spmd::Shard1 && op.k.place[a] == Spmd::Replicate);
                    }),
                    "keys are held neither as queries are, nor whole beside cut heads");
}

template <class Op>
void check_reduction(const Op& op) {
  require(op, op.x && op.x.contiguous(), "x");
  require(op, is_vector(op.out, 1) && op.out.dtype == DType::f64, "out is one f64");
  require_placement(op, none_partial(op.x.place), "a sum over ranks is not complete");
}

template <class Op>
void check_update(const Op& op, std::initializer_list<const Tensor*> states) {
  require(op, is_stat(op.w) && op.w.contiguous() && all_like(op.w, {&op.grad}) && all_like(op.w, states),
          "weights, gradients and states differ");
  require(op, !op.value || same_size(op.value, op.w), "value");
  require_placement(op, none_partial(op.grad.place) && op.grad.place == op.w.place, "the gradient is not reduced");
}

}  // namespace

void check(const Matmul& op) {
  require(op, is_compute(op.a) && op.a.dtype == op.b.dtype, "operands differ in dtype");
  require(op, op.out.dtype == op.a.dtype || op.out.dtype == stat_of(op.a.dtype), "out dtype");
  const int64_t m = op.trans_a ? op.a.cols() : op.a.rows(), k = op.trans_a ? op.a.rows() : op.a.cols();
  const int64_t kb = op.trans_b ? op.b.cols() : op.b.rows(), n = op.trans_b ? op.b.rows() : op.b.cols();
  require(op, op.out.rows() == m && op.out.cols() == n && k == kb, "shapes do not fit");
  require(op, !op.bias || (is_vector(op.bias, n) && op.bias.dtype == op.a.dtype && !op.accumulate), "bias");
  require_placement(op, each_axis([&](Axis a) { return legal(op, a); }), "no such product of parts");
}

void check(const BiasGrad& op) {
  require(op, is_compute(op.dy) && is_vector(op.db, op.dy.cols()) && op.db.dtype == stat_of(op.dy.dtype), "db");
  require_placement(op, each_axis([&](Axis a) { return op.db.place[a] == summed_rows(op.dy.place[a]); }),
                    "db is held otherwise");
}

void check(const Embed& op) {
  require(op, is_vector(op.ids, op.out.rows()) && op.ids.dtype == DType::i32, "ids");
  require(op, is_compute(op.out) && op.table.dtype == op.out.dtype && op.table.cols() == op.out.cols(), "table");
  require_placement(op, each_axis([&](Axis a) {
                      const Spmd table = op.table.place[a], out = op.out.place[a];
                      if (table == Spmd::Shard0) return out == Spmd::Partial;
                      return table == whole_beside(out) && out != Spmd::Partial && out != Spmd::Shard1;
                    }),
                    "the table is held otherwise");
}

void check(const EmbedBackward& op) {
  require(op, is_vector(op.ids, op.dy.rows()) && op.ids.dtype == DType::i32, "ids");
  require(op, op.dtable.dtype == stat_of(op.dy.dtype) && op.dtable.cols() == op.dy.cols(), "dtable");
  require_placement(op, each_axis([&](Axis a) {
                      const Spmd dy = op.dy.place[a], dtable = op.dtable.place[a];
                      return dtable == summed_rows(dy) || (dy == Spmd::Replicate && dtable == Spmd::Shard0);
                    }),
                    "dtable is held otherwise");
}

namespace {
bool norm_stream(Spmd s) { return s != Spmd::Shard1 && s != Spmd::Partial; }
template <class Op>
void check_norm(const Op& op) {
  const int64_t d = op.x.cols();
  require(op, is_compute(op.x) && is_vector(op.w, d) && op.w.dtype == op.x.dtype, "w");
  require(op, is_vector(op.rstd, op.x.rows()) && op.rstd.dtype == stat_of(op.x.dtype), "rstd");
  require(op, !op.mean || (is_vector(op.mean, op.x.rows()) && op.mean.dtype == op.rstd.dtype), "mean");
  require_placement(
      op, each_axis([&](Axis a) { return norm_stream(op.x.place[a]) && op.w.place[a] == whole_beside(op.x.place[a]); }),
      "a norm of a part, or weights held otherwise");
  require_placement(op, all_placed(op.x.place, {&op.mean, &op.rstd}), "statistics are held otherwise");
}
}  // namespace

void check(const Norm& op) {
  check_norm(op);
  require(op, all_like(op.x, {&op.delta, &op.sum, &op.y}) && op.y && bool(op.delta) == bool(op.sum),
          "x, delta, sum, y");
  require(op, !op.b || all_like(op.w, {&op.b}), "b");
  require_placement(op, all_placed(op.x.place, {&op.delta, &op.sum, &op.y}) && all_placed(op.w.place, {&op.b}),
                    "held otherwise than x");
}

void check(const NormApply& op) {
  check_norm(op);
  require(op, op.y && all_like(op.x, {&op.y}) && (!op.b || all_like(op.w, {&op.b})), "y, b");
  require_placement(op, all_placed(op.x.place, {&op.y}) && all_placed(op.w.place, {&op.b}), "held otherwise than x");
}

void check(const NormBackward& op) {
  check_norm(op);
  require(op, op.dy && op.dx && all_like(op.x, {&op.dy, &op.dx, &op.carry}), "dy, dx, carry");
  require(op, is_vector(op.dw, op.x.cols()) && op.dw.dtype == op.rstd.dtype && (!op.db || all_like(op.dw, {&op.db})),
          "dw, db");
  require_placement(
      op, all_placed(op.x.place.dual(), {&op.dy, &op.dx, &op.carry}) && all_placed(op.w.place.dual(), {&op.dw, &op.db}),
      "gradients are not held on the dual");
}

void check(const HeadNorm& op) {
  require(op, is_compute(op.x) && op.w.dtype == op.x.dtype && op.x.cols() % op.w.elements() == 0, "w");
  require(op, op.y && all_like(op.x, {&op.y}), "y");
  require(op, op.rstd && op.rstd.rows() == op.x.rows() && op.rstd.cols() == op.x.cols() / op.w.elements(), "rstd");
  require_placement(op, none_partial(op.x.place) && all_placed(op.x.place, {&op.y, &op.rstd}) && each_axis([&](Axis a) {
                          return op.w.place[a] == whole_beside(op.x.place[a]);
                        }),
                    "held otherwise than x");
}

void check(const HeadNormBackward& op) {
  require(op, is_compute(op.x) && op.dy && op.dx && all_like(op.x, {&op.dy, &op.dx}), "dy, dx");
  require(op, is_vector(op.dw, op.w.elements()) && op.dw.dtype == stat_of(op.x.dtype), "dw");
  require_placement(op, all_placed(op.x.place.dual(), {&op.dy, &op.dx}) && op.dw.place == op.w.place.dual(),
                    "gradients are not held on the dual");
}

void check(const Rope& op) {
  require(op, is_compute(op.x) && is_vector(op.positions, op.x.rows()) && op.positions.dtype == DType::i32,
          "positions");
  require(op, op.table.dtype == stat_of(op.x.dtype) && op.table.cols() % 2 == 0 && op.x.cols() % op.table.cols() == 0,
          "table");
}

void check(const Attention& op) {
  require(op, op.o && all_like(op.q, {&op.o}), "o");
  check_attention(op);
}

void check(const AttentionBackward& op) {
  require(op, op.dq && op.dk && op.dv && all_like(op.q, {&op.o, &op.dout, &op.dq}) && all_like(op.k, {&op.dk, &op.dv}),
          "gradients");
  check_attention(op);
  require_placement(
      op, all_placed(op.q.place.dual(), {&op.dq, &op.dout}) && all_placed(op.k.place.dual(), {&op.dk, &op.dv}),
      "gradients are not held on the dual");
}

void check(const Swiglu& op) {
  require(op,
          is_compute(op.u) && op.a.dtype == op.u.dtype && op.u.rows() == op.a.rows() && op.u.cols() == 2 * op.a.cols(),
          "u is [t, 2 f]");
  require_placement(op, none_partial(op.u.place) && op.u.place == op.a.place, "of a sum, or held otherwise");
}

void check(const SwigluBackward& op) {
  require(op,
          is_compute(op.u) && all_like(op.u, {&op.du}) && op.da.dtype == op.u.dtype && op.u.cols() == 2 * op.da.cols(),
          "u, da, du");
  require_placement(op, none_partial(op.u.place) && all_placed(op.u.place.dual(), {&op.da, &op.du}), "held otherwise");
}

void check(const Gelu& op) {
  require(op, is_compute(op.x) && op.y && all_like(op.x, {&op.y}), "y");
  require_placement(op, none_partial(op.x.place) && op.x.place == op.y.place, "of a sum, or held otherwise");
}

void check(const GeluBackward& op) {
  require(op, is_compute(op.x) && op.dy && op.dx && all_like(op.x, {&op.dy, &op.dx}), "dy, dx");
  require_placement(op, none_partial(op.x.place) && all_placed(op.x.place.dual(), {&op.dy, &op.dx}), "held otherwise");
}

void check(const Dropout& op) {
  require(op, is_compute(op.x) && op.y && all_like(op.x, {&op.y}), "y");
  require(op, is_vector(op.tokens, op.x.rows()) && op.tokens.dtype == DType::i64, "tokens");
  require(op, op.dropout.p >= 0 && op.dropout.p < 1 && op.first >= 0 && op.first + op.x.cols() <= op.total,
          "p or columns");
  require_placement(op, op.x.place == op.y.place, "held otherwise");
}

void check(const CrossEntropy& op) {
  const int64_t t = op.logits.rows();
  require(op, is_stat(op.logits) && is_vector(op.nll, t) && op.nll.dtype == op.logits.dtype, "nll");
  require(op,
          is_vector(op.targets, t) && op.targets.dtype == DType::i32 && is_vector(op.counted, t) &&
              op.counted.dtype == DType::u8,
          "targets, counted");
  require(op, !op.dlogits || (is_compute(op.dlogits) && same_size(op.dlogits, op.logits)), "dlogits");
  require_placement(
      op, none_partial(op.logits.place) && each_axis([&](Axis a) { return op.logits.place[a] != Spmd::Shard1; }),
      "cross-entropy over a part of the vocabulary is not there yet: hold the head whole");
  require_placement(op, all_placed(op.logits.place, {&op.nll}) && all_placed(op.logits.place.dual(), {&op.dlogits}),
                    "held otherwise");
}

void check(const Add& op) {
  require(op, op.x && op.y && op.out && all_like(op.x, {&op.y, &op.out}), "x, y, out");
  require_placement(op, all_placed(op.x.place, {&op.y, &op.out}), "held otherwise");
}

void check(const AddRow& op) {
  require(op, is_compute(op.y) && is_vector(op.b, op.y.cols()) && op.b.dtype == op.y.dtype, "b");
  require_placement(
      op, none_partial(op.y.place) && each_axis([&](Axis a) { return op.b.place[a] == columns_beside(op.y.place[a]); }),
      "a bias added to a sum over ranks that is not complete, or held otherwise");
}

void check(const Copy& op) {
  require(op, op.from && op.to && same_size(op.from, op.to) && is_compute(op.from) && is_compute(op.to), "from, to");
  require_placement(op, op.from.place == op.to.place, "held otherwise");
}

void check(const Zero& op) { require(op, bool(op.x), "x"); }
void check(const Sum& op) { check_reduction(op); }
void check(const SumSquares& op) { check_reduction(op); }
void check(const CountNonfinite& op) { check_reduction(op); }
void check(const AdamW& op) {
  require(op, op.m && op.v && op.step >= 1, "states");
  check_update(op, {&op.m, &op.v});
}
void check(const Sgd& op) {
  require(op, op.buf && op.step >= 1, "states");
  check_update(op, {&op.buf});
}

}  // namespace weft::rules
