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
  judge.held(
      op.w, [&](Axis a) { return whole_beside(op.x.place[a]); }, "beside x");
  judge.held_as(op.x.place, {&op.rstd}, "as x is");
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
  judge.exist({&op.y});
  judge.like(op.x, {&op.y});
  judge.held_as(op.x.place, {&op.y}, "as x is");
}

void check(const HeadNormBackward& op) {
  const Judge judge(op);
  check_head_norm(op);
  judge.exist({&op.dy, &op.dx});
  judge.like(op.x, {&op.dy, &op.dx});
  judge.vector(op.dw, op.w.elements(), stat_of(op.x.dtype));
  judge.held_as(op.x.place.dual(), {&op.dy, &op.dx}, "as a gradient of x is");
  judge.held_as(op.w.place.dual(), {&op.dw}, "as a gradient of w is");
}

}  // namespace weft::rules
