// Rules of normalization.
#include "weft/ops/rules_judge.h"

namespace weft::rules {
namespace {

// x, its weights and its statistics. A row is whole: cut or summed rows have other statistics.
template <class Op>
void check_norm(const Op& op) {
  const Judge judge(op);
  judge.compute(op.x);
  judge.vector(op.w, op.x.cols(), op.x.dtype);
  judge.vector(op.rstd, op.x.rows(), stat_of(op.x.dtype));
  judge.vectors_like(op.rstd, {&op.mean});
  judge.held_where(
      op.x, [&](Axis a) { return op.x.place[a] != Spmd::Shard1 && op.x.place[a] != Spmd::Partial; },
      "a norm needs whole rows");
  judge.held(
      op.w, [&](Axis a) { return whole_beside(op.x.place[a]); }, "beside x");
  judge.held_as(op.x.place, {&op.mean, &op.rstd}, "as x is");
}

// A number for each row, once it is the same on all ranks that have columns of the row.
Placement of_rows(Placement x) {
  for (int a = 0; a < kAxes; ++a)
    if (x[Axis(a)] == Spmd::Shard1) x = x.with(Axis(a), Spmd::Invariant);
  return x;
}

// Heads may be cut: each is normalized on its own.
template <class Op>
void check_head_norm(const Op& op) {
  const Judge judge(op);
  judge.compute(op.x);
  const int64_t e = op.w.elements();
  judge.that(op.w, op.w && e > 0 && op.x.cols() % e == 0, "does not divide the width of x");
  judge.vector(op.w, e, op.x.dtype);
  judge.matrix(op.rstd, op.x.rows(), op.x.cols() / e, stat_of(op.x.dtype));
  judge.not_partial(op.x, "a norm of a sum over ranks that is not complete");
}

// w and the statistics of heads, each whole on its rank; or of rows that ranks have columns of: then what was summed
// over them is the same on all.
template <class Op>
void check_held(const Op& op, const Tensor& given) {
  const Judge judge(op);
  if (!given) {
    judge.held(
        op.w, [&](Axis a) { return whole_beside(op.x.place[a]); }, "beside x");
    judge.held_as(op.x.place, {&op.rstd}, "as x is");
    return;
  }
  judge.that(given, op.x.cols() == op.w.elements() && op.total >= op.x.cols(), "is of rows, not of heads");
  judge.matrix(given, op.x.rows(), 1, stat_of(op.x.dtype));
  judge.held(
      op.w, [&](Axis a) { return columns_beside(op.x.place[a]); }, "beside x");
  judge.held_as(of_rows(op.x.place), {&op.rstd}, "whole where columns of x are cut");
}

}  // namespace

void check(const Norm& op) {
  const Judge judge(op);
  check_norm(op);
  judge.exist({&op.y});
  judge.like(op.x, {&op.delta, &op.sum, &op.y});
  judge.that(op.sum, bool(op.delta) == bool(op.sum), "exists if and only if delta does");
  judge.vectors_like(op.w, {&op.b});
  judge.held_as(op.x.place, {&op.delta, &op.sum, &op.y}, "as x is");
  judge.held_as(op.w.place, {&op.b}, "as w is");
}

void check(const NormApply& op) {
  const Judge judge(op);
  check_norm(op);
  judge.exist({&op.y});
  judge.like(op.x, {&op.y});
  judge.vectors_like(op.w, {&op.b});
  judge.held_as(op.x.place, {&op.y}, "as x is");
  judge.held_as(op.w.place, {&op.b}, "as w is");
}

void check(const NormBackward& op) {
  const Judge judge(op);
  check_norm(op);
  judge.exist({&op.dy, &op.dx, &op.dw});
  judge.like(op.x, {&op.dy, &op.dx, &op.carry});
  judge.vector(op.dw, op.x.cols(), stat_of(op.x.dtype));
  judge.vectors_like(op.dw, {&op.db});
  judge.held_as(op.x.place.dual(), {&op.dy, &op.dx, &op.carry}, "as a gradient of x is");
  judge.held_as(op.w.place.dual(), {&op.dw, &op.db}, "as a gradient of w is");
}

void check(const HeadNorm& op) {
  const Judge judge(op);
  check_head_norm(op);
  check_held(op, op.squares);
  judge.held_as(of_rows(op.x.place), {&op.squares}, "complete");
  judge.exist({&op.y});
  judge.like(op.x, {&op.y});
  judge.held_as(op.x.place, {&op.y}, "as x is");
}

void check(const HeadNormBackward& op) {
  const Judge judge(op);
  check_head_norm(op);
  check_held(op, op.dots);
  judge.held_as(of_rows(op.x.place).dual(), {&op.dots}, "complete where columns are cut, a part where dy is one");
  judge.exist({&op.dy, &op.dx});
  judge.like(op.x, {&op.dy, &op.dx});
  judge.vector(op.dw, op.w.elements(), stat_of(op.x.dtype));
  judge.held_as(op.x.place.dual(), {&op.dy, &op.dx}, "as a gradient of x is");
  judge.held_as(op.w.place.dual(), {&op.dw}, "as a gradient of w is");
}

// Linear in y: cut columns, or a y that is a part of a sum, make parts of the sum.
void check(const RowDots& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.y});
  judge.compute(op.x);
  judge.like(op.x, {&op.y});
  if (op.w) judge.vector(op.w, op.x.cols(), op.x.dtype);
  judge.matrix(op.out, op.x.rows(), 1, stat_of(op.x.dtype));
  judge.not_partial(op.x, "a product of two sums over ranks that are not complete");
  judge.held_where(
      op.y, [&](Axis a) { return op.y.place[a] == op.x.place[a] || op.y.place[a] == dual(op.x.place[a]); },
      "should be held as x is, or as its gradient");
  judge.held(
      op.w, [&](Axis a) { return columns_beside(op.x.place[a]); }, "beside x");
  judge.held(
      op.out, [&](Axis a) { return op.x.place[a] == Spmd::Shard1 ? Spmd::Partial : op.y.place[a]; },
      "a part of the sum where columns are cut");
}

}  // namespace weft::rules
