// Rules of products, tables and what adds rows up.   m, n, k as in Matmul
#include "weft/ops/rules_judge.h"

namespace weft::rules {
namespace {

// What an axis cuts of a product: one of its dimensions, or how it holds a whole operand.
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

struct ProductRow {
  Cut a, b;
  Spmd out;
};
constexpr ProductRow kProducts[] = {
    {Cut::none, Cut::none, Spmd::None},         //
    {Cut::m, Cut::whole, Spmd::Shard0},         // tokens by a whole weight
    {Cut::whole, Cut::n, Spmd::Shard1},         // tokens by columns of a weight
    {Cut::k, Cut::k, Spmd::Partial},            // the summed dimension is cut: row-parallel weights, weight gradients
    {Cut::partial, Cut::whole, Spmd::Partial},  // linear in a
    {Cut::whole, Cut::partial, Spmd::Partial},  // and in b
    {Cut::same, Cut::same, Spmd::Invariant},    // equal work
    {Cut::whole, Cut::whole, Spmd::Replicate},
};

void check_placement(const Matmul& op, Axis axis) {
  const Judge judge(op);
  const Cut a = op.trans_a ? cut_of(op.a.place[axis], Cut::k, Cut::m) : cut_of(op.a.place[axis], Cut::m, Cut::k);
  const Cut b = op.trans_b ? cut_of(op.b.place[axis], Cut::n, Cut::k) : cut_of(op.b.place[axis], Cut::k, Cut::n);
  for (const ProductRow& row : kProducts) {
    if (row.a != a || row.b != b) continue;
    if (op.out.place[axis] != row.out)
      judge.misplaced(op.out, axis, fmt::format("the product of these parts is {}", name_of(row.out)));
    if (!op.bias) return;
    if (row.out == Spmd::Partial) judge.misplaced(op.bias, axis, "a bias would be added once by every rank");
    const Spmd bias = columns_beside(row.out);
    if (op.bias.place[axis] != bias)
      judge.misplaced(op.bias, axis,
                      fmt::format("beside out held {} it should be {}", name_of(row.out), name_of(bias)));
    return;
  }
  judge.misplaced(op.a, axis, fmt::format("there is no product of it by b held {}", name_of(op.b.place[axis])));
}

// How the ranks hold a table and the rows taken from it; and their gradients.
struct TableRow {
  Spmd table, rows;
};
constexpr TableRow kLookups[] = {
    {Spmd::None, Spmd::None},         //
    {Spmd::Replicate, Spmd::Shard0},  // each rank looks up its tokens
    {Spmd::Replicate, Spmd::Replicate}, {Spmd::Invariant, Spmd::Invariant},
    {Spmd::Shard0, Spmd::Partial},  // a part of the vocabulary: other rows are zero
};
constexpr TableRow kLookupGradients[] = {
    {Spmd::None, Spmd::None},       //
    {Spmd::Partial, Spmd::Shard0},  // each rank adds its tokens' gradients
    {Spmd::Partial, Spmd::Partial}, {Spmd::Invariant, Spmd::Invariant}, {Spmd::Shard0, Spmd::Replicate},
};
template <class Op, size_t n>
void check_lookup(const Op& op, const Tensor& table, const Tensor& rows, const TableRow (&allowed)[n]) {
  Judge(op).held_where(
      table,
      [&](Axis a) {
        for (const TableRow& row : allowed)
          if (row.table == table.place[a] && row.rows == rows.place[a]) return true;
        return false;
      },
      "tokens are not held so that this table fits");
}

}  // namespace

void check(const Matmul& op) {
  const Judge judge(op);
  judge.exist({&op.a, &op.b, &op.out});
  for (const Tensor* t : {&op.a, &op.b, &op.out}) judge.that(*t, t->shape.rank() > 1, "should be a matrix");
  judge.compute(op.a);
  const int64_t m = op.trans_a ? op.a.cols() : op.a.rows(), k = op.trans_a ? op.a.rows() : op.a.cols();
  const int64_t n = op.trans_b ? op.b.rows() : op.b.cols();
  judge.matrix(op.b, op.trans_b ? n : k, op.trans_b ? k : n, op.a.dtype);
  judge.that(op.out, op.out.dtype == op.a.dtype || op.out.dtype == stat_of(op.a.dtype),
             "should be of the operands' dtype or a stat");
  judge.matrix(op.out, m, n, op.out.dtype);
  if (op.bias) judge.vector(op.bias, n, op.a.dtype);
  judge.that(op.bias, !op.bias || !op.accumulate, "a bias cannot be added to a sum");
  for (int a = 0; a < kAxes; ++a) check_placement(op, Axis(a));
}

// A linear map of dy, and of x: cut rows make parts of the sum, cut columns stay cut, and whatever is whole or a part
// stays so.
void check(const BiasGrad& op) {
  const Judge judge(op);
  judge.compute(op.dy);
  judge.vector(op.db, op.dy.cols(), stat_of(op.dy.dtype));
  judge.like(op.dy, {&op.x});
  if (op.x)
    judge.held_where(
        op.x, [&](Axis a) { return op.x.place[a] == op.dy.place[a] || op.x.place[a] == dual(op.dy.place[a]); },
        "should be held as dy is, or as what dy is the gradient of");
  judge.held(
      op.db,
      [&](Axis a) {
        const Spmd dy = op.dy.place[a], x = op.x ? op.x.place[a] : dy;
        return dy == Spmd::Shard0 ? Spmd::Partial : dy == Spmd::Shard1 ? Spmd::Shard0 : x == Spmd::Partial ? x : dy;
      },
      "as the sum over rows of dy is");
}

void check(const Embed& op) {
  const Judge judge(op);
  judge.exist({&op.ids, &op.table, &op.out});
  judge.compute(op.out);
  judge.matrix(op.table, op.table.rows(), op.out.cols(), op.out.dtype);
  judge.indexes(op.ids, op.out.rows(), DType::i32, op.out.place);
  check_lookup(op, op.table, op.out, kLookups);
}

void check(const EmbedBackward& op) {
  const Judge judge(op);
  judge.exist({&op.ids, &op.dy, &op.dtable});
  judge.compute(op.dy);
  judge.matrix(op.dtable, op.dtable.rows(), op.dy.cols(), stat_of(op.dy.dtype));
  judge.indexes(op.ids, op.dy.rows(), DType::i32, op.dy.place);
  check_lookup(op, op.dtable, op.dy, kLookupGradients);
}

// A bias is no part of a sum over ranks: each would add it.
void check(const AddRow& op) {
  const Judge judge(op);
  judge.compute(op.y);
  judge.vector(op.b, op.y.cols(), op.y.dtype);
  judge.not_partial(op.y, "a bias would be added once by every rank");
  judge.held(
      op.b, [&](Axis a) { return columns_beside(op.y.place[a]); }, "beside y");
}

// Linear in x.
void check(const ScaleColumns& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.y});
  judge.compute(op.x);
  judge.like(op.x, {&op.y});
  judge.held_as(op.x.place, {&op.y}, "as x is");
  for (const Tensor* factors : {&op.w, &op.squares}) {
    if (*factors) judge.vector(*factors, op.x.cols(), stat_of(op.x.dtype));
    judge.held(
        *factors, [&](Axis a) { return columns_beside(op.x.place[a]); }, "beside x");
  }
}

}  // namespace weft::rules
