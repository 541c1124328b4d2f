// Rules of activations, losses, sums, copies, reductions and updates.
#include "weft/ops/rules_judge.h"

namespace weft::rules {
namespace {

constexpr std::string_view kNonlinear = "a nonlinear function of a sum over ranks that is not complete";

// x an input of a nonlinear function, dy and dx gradients; outputs are held as x.
template <class Op>
void check_pointwise_backward(const Op& op, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  const Judge judge(op);
  judge.not_partial(x, kNonlinear);
  judge.held_as(x.place.dual(), {&dy, &dx}, "as the gradient is");
}

template <class Op>
void check_reduction(const Op& op) {
  const Judge judge(op);
  judge.that(op.x, op.x && op.x.contiguous(), "should be contiguous");
  judge.vector(op.out, 1, DType::f64);
  judge.not_partial(op.x, "a sum over ranks is not complete");
}

// All of an update's operands are the same part of the same weights.
template <class Op>
void check_update(const Op& op, std::initializer_list<const Tensor*> states) {
  const Judge judge(op);
  judge.exist({&op.w, &op.grad});
  judge.exist(states);
  judge.that(op.w, op.w.dtype == DType::f32 || op.w.dtype == DType::f64, "should be f32 or f64");
  judge.vector(op.w, op.w.elements(), op.w.dtype);
  judge.vectors_like(op.w, {&op.grad});
  judge.vectors_like(op.w, states);
  if (op.value) judge.vector(op.value, op.w.elements(), op.value.dtype);
  judge.that(op.value, !op.value || (is_compute(op.value.dtype) && stat_of(op.value.dtype) == op.w.dtype),
             "should be a compute dtype whose stats are as w");
  judge.that(op.w, op.step >= 1, "steps count from 1");
  judge.not_partial(op.grad, "the gradient is not reduced");
  judge.held_as(op.w.place, {&op.grad, &op.value}, "as w is");
  judge.held_as(op.w.place, states, "as w is");
}

// Codes of moments beside a tensor of as many numbers, and what their blocks have.
template <class Op>
void check_codes(const Op& op, const Tensor& like) {
  const Judge judge(op);
  const int64_t n = like.elements();
  judge.that(op.m, op.at.cols > 0 && op.at.cols <= op.at.stride, "its columns are not of a matrix");
  for (const Tensor* t : {&op.m, &op.v}) judge.vector(*t, n, DType::u8);
  for (const Tensor* t : {&op.m_absmax, &op.v_absmax, &op.m_max, &op.v_max})
    judge.vector(*t, op.at.num_blocks(n), like.dtype);
  judge.held_as(like.place, {&op.m, &op.v, &op.m_absmax, &op.v_absmax, &op.m_max, &op.v_max}, "as the gradient is");
}

}  // namespace

void check(const GatedUnit& op) {
  const Judge judge(op);
  judge.exist({&op.u, &op.a});
  judge.compute(op.a);
  judge.that(op.u, (op.kind == GateKind::clamped) == (op.limit > 0), "a limit is of clamped units, which have one");
  judge.matrix(op.u, op.a.rows(), 2 * op.a.cols(), op.a.dtype);
  judge.not_partial(op.u, kNonlinear);
  judge.held_as(op.u.place, {&op.a}, "as u is");
}

void check(const GatedUnitBackward& op) {
  const Judge judge(op);
  judge.exist({&op.u, &op.da, &op.du});
  judge.compute(op.da);
  judge.that(op.u, (op.kind == GateKind::clamped) == (op.limit > 0), "a limit is of clamped units, which have one");
  judge.matrix(op.u, op.da.rows(), 2 * op.da.cols(), op.da.dtype);
  judge.like(op.u, {&op.du});
  check_pointwise_backward(op, op.u, op.da, op.du);
}

void check(const Gelu& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.y});
  judge.compute(op.x);
  judge.like(op.x, {&op.y});
  judge.not_partial(op.x, kNonlinear);
  judge.held_as(op.x.place, {&op.y}, "as x is");
}

void check(const GeluBackward& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.dy, &op.dx});
  judge.compute(op.x);
  judge.like(op.x, {&op.dy, &op.dx});
  check_pointwise_backward(op, op.x, op.dy, op.dx);
}

void check(const SoftCap& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.y});
  judge.that(op.x, op.x.dtype == DType::f32 || op.x.dtype == DType::f64, "should be f32 or f64");
  judge.like(op.x, {&op.y});
  judge.that(op.x, op.cap > 0, "a cap is positive");
  judge.not_partial(op.x, kNonlinear);
  judge.held_as(op.x.place, {&op.y}, "as x is");
}

// Gradients of logits are held as the logits are (CrossEntropy).
void check(const SoftCapBackward& op) {
  const Judge judge(op);
  judge.exist({&op.y, &op.dy, &op.dx});
  judge.compute(op.dy);
  judge.matrix(op.y, op.dy.rows(), op.dy.cols(), stat_of(op.dy.dtype));
  judge.like(op.dy, {&op.dx});
  judge.that(op.y, op.cap > 0, "a cap is positive");
  judge.not_partial(op.y, kNonlinear);
  judge.held_as(op.y.place, {&op.dy, &op.dx}, "as y is");
}

void check(const Dropout& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.y, &op.tokens});
  judge.compute(op.x);
  judge.like(op.x, {&op.y});
  judge.indexes(op.tokens, op.x.rows(), DType::i64, op.x.place);
  judge.that(op.x, op.dropout.p >= 0 && op.dropout.p < 1, "dropout is in [0, 1)");
  judge.that(op.x, op.first >= 0 && op.first + op.x.cols() <= op.total, "its columns are not among `total`");
  judge.held_as(op.x.place, {&op.y}, "as x is");
}

namespace {

template <class Op>
void check_logits(const Op& op) {
  const Judge judge(op);
  judge.exist({&op.logits, &op.targets});
  judge.that(op.logits, op.logits.dtype == DType::f32 || op.logits.dtype == DType::f64, "should be f32 or f64");
  judge.that(op.logits, op.logits.cols() > 0, "has no classes");
  judge.indexes(op.targets, op.logits.rows(), DType::i32, op.logits.place);
}

template <class Op>
void check_losses(const Op& op) {
  const Judge judge(op);
  const int64_t t = op.logits.rows();
  judge.exist({&op.weights, &op.nll});
  judge.indexes(op.weights, t, op.logits.dtype, op.logits.place);
  judge.vector(op.nll, t, op.logits.dtype);
  if (op.dlogits) judge.matrix(op.dlogits, t, op.logits.cols(), op.dlogits.dtype);
  judge.that(op.dlogits, !op.dlogits || (is_compute(op.dlogits.dtype) && stat_of(op.dlogits.dtype) == op.logits.dtype),
             "should be a compute dtype whose stats are as logits");
}

// The classes are cut over some axis; tokens may be over others.
template <class Op>
void check_cut_logits(const Op& op) {
  Judge(op).held_where(
      op.logits,
      [&](Axis a) {
        const Spmd s = op.logits.place[a];
        return s == Spmd::Shard1 || s == Spmd::Shard0 || s == Spmd::None || s == Spmd::Invariant;
      },
      "classes are cut by columns, tokens by rows");
}

template <class Op>
void check_part(const Op& op, int64_t numbers) {
  const Judge judge(op);
  check_logits(op);
  check_cut_logits(op);
  judge.matrix(op.parts, op.logits.rows(), numbers, op.logits.dtype);
  judge.held(
      op.parts, [&](Axis a) { return op.logits.place[a] == Spmd::Shard1 ? Spmd::Shard0 : op.logits.place[a]; },
      "a run of rows for each rank that has classes");
}

template <class Op>
void check_join(const Op& op, int64_t numbers) {
  const Judge judge(op);
  check_logits(op);
  check_losses(op);
  check_cut_logits(op);
  judge.that(op.parts, op.parts && op.parts.rows() > 0 && op.parts.rows() % op.logits.rows() == 0,
             "should be [ranks tokens, numbers of a part]");
  judge.matrix(op.parts, op.parts.rows(), numbers, op.logits.dtype);
  judge.held(
      op.parts, [&](Axis a) { return op.logits.place[a] == Spmd::Shard1 ? Spmd::Replicate : op.logits.place[a]; },
      "all ranks' parts");
  judge.held(
      op.nll, [&](Axis a) { return op.logits.place[a] == Spmd::Shard1 ? Spmd::Invariant : op.logits.place[a]; },
      "every rank has every loss");
  judge.held_as(op.logits.place, {&op.dlogits}, "as logits are");
}

// The teacher's logits have the same tokens and classes.
template <class Op>
void check_teacher(const Op& op) {
  const Judge judge(op);
  judge.exist({&op.teacher});
  judge.like(op.logits, {&op.teacher});
  judge.held_as(op.logits.place, {&op.teacher}, "as logits are");
}

// What is known of the same tokens: every rank that has some of their classes knows it.
template <class Op>
void check_top(const Op& op) {
  const Judge judge(op);
  const int64_t t = op.logits.rows();
  judge.exist({&op.ids, &op.top, &op.lse});
  judge.that(op.top, op.top.cols() > 0, "has no classes");
  judge.matrix(op.ids, t, op.top.cols(), DType::i32);
  judge.matrix(op.top, t, op.top.cols(), op.logits.dtype);
  judge.indexes(op.lse, t, op.logits.dtype, op.logits.place);
  judge.held_as(op.lse.place, {&op.ids, &op.top}, "as lse is");
  judge.that(op.top, !op.loss.reverse, "the mass of the other classes does not say how likely one of them is");
}

}  // namespace

void check(const CrossEntropyPart& op) { check_part(op, 3); }
void check(const CrossEntropyJoin& op) { check_join(op, 3); }

void check(const DistillPart& op) {
  check_part(op, DistillPart::kNumbers);
  check_teacher(op);
}

void check(const DistillJoin& op) {
  check_join(op, DistillPart::kNumbers);
  check_teacher(op);
  const Judge judge(op);
  judge.vector(op.divergence, op.logits.rows(), op.logits.dtype);
  judge.held_as(op.nll.place, {&op.divergence}, "as nll is");
  judge.that(op.dlogits, bool(op.dlogits), "is what this op is for");
}

void check(const DistillTopPart& op) {
  check_part(op, DistillTopPart::kNumbers);
  check_top(op);
}

void check(const DistillTopJoin& op) {
  check_join(op, DistillTopPart::kNumbers);
  check_top(op);
  const Judge judge(op);
  judge.vector(op.divergence, op.logits.rows(), op.logits.dtype);
  judge.held_as(op.nll.place, {&op.divergence}, "as nll is");
  judge.that(op.dlogits, bool(op.dlogits), "is what this op is for");
}

void check(const CrossEntropy& op) {
  const Judge judge(op);
  check_logits(op);
  check_losses(op);
  judge.held_where(
      op.logits, [&](Axis a) { return op.logits.place[a] != Spmd::Shard1; },
      "classes that are cut over ranks need CrossEntropyPart and CrossEntropyJoin");
  judge.held_where(
      op.logits, [&](Axis a) { return op.logits.place[a] != Spmd::Partial && op.logits.place[a] != Spmd::Replicate; },
      "a loss counts each token once: Shard0 or Invariant");
  judge.held_as(op.logits.place, {&op.nll, &op.dlogits}, "as logits are");
}

void check(const Add& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.y, &op.out});
  judge.compute(op.x);
  judge.like(op.x, {&op.y, &op.out});
  judge.held_as(op.x.place, {&op.y, &op.out}, "as x is");
}

void check(const Axpby& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.out});
  judge.compute(op.x);
  judge.like(op.x, {&op.y, &op.out});
  judge.held_as(op.x.place, {&op.y, &op.out}, "as x is");
}

void check(const Copy& op) {
  const Judge judge(op);
  judge.compute(op.from);
  judge.compute(op.to);
  judge.matrix(op.to, op.from.rows(), op.from.cols(), op.to.dtype);
  judge.held_as(op.from.place, {&op.to}, "as what is copied");
}

void check(const Zero& op) { Judge(op).compute(op.x); }

void check(const Ones& op) {
  const Judge judge(op);
  judge.compute(op.x);
  judge.not_partial(op.x, "ones of all ranks add up to more");
}

void check(const Sum& op) {
  check_reduction(op);
  Judge(op).that(op.x, op.x.dtype == DType::f32 || op.x.dtype == DType::f64, "should be f32 or f64");
}
void check(const SumSquares& op) {
  check_reduction(op);
  Judge(op).that(op.x, op.x.dtype == DType::f32 || op.x.dtype == DType::f64, "should be f32 or f64");
}
void check(const CountNonfinite& op) {
  check_reduction(op);
  Judge(op).compute(op.x);
}

void check(const AdamW& op) { check_update(op, {&op.m, &op.v}); }
void check(const AdamW8Max& op) {
  const Judge judge(op);
  judge.exist({&op.grad});
  judge.that(op.grad, op.grad.dtype == DType::f32 || op.grad.dtype == DType::f64, "should be f32 or f64");
  judge.vector(op.grad, op.grad.elements(), op.grad.dtype);
  judge.not_partial(op.grad, "the gradient is not reduced");
  check_codes(op, op.grad);
}
void check(const AdamW8& op) {
  check_update(op, {});
  check_codes(op, op.w);
}
void check(const MaxRows& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.out});
  judge.that(op.x, op.x.dtype == DType::f32 || op.x.dtype == DType::f64, "should be f32 or f64");
  judge.matrix(op.x, op.x.rows(), op.out.elements(), op.x.dtype);
  judge.that(op.x, op.x.rows() > 0, "has no rows");
  judge.vector(op.out, op.out.elements(), op.x.dtype);
  judge.not_partial(op.x, kNonlinear);
  judge.held_as(op.x.place, {&op.out}, "as x is");
}
void check(const Sgd& op) { check_update(op, {&op.buf}); }

void check(const Dequantise& op) {
  const Judge judge(op);
  judge.exist({&op.codes, &op.scales, &op.out});
  judge.compute(op.out);
  judge.that(op.out, op.at.as != WeightCodes::none && op.at.cols <= op.at.stride, "has no codes, or not of a matrix");
  judge.matrix(op.out, op.at.rows, op.at.cols, op.out.dtype);
  judge.vector(op.codes, op.at.num_codes(), DType::u8);
  judge.vector(op.scales, op.at.num_scales(), stat_of(op.out.dtype));
  if (op.maxima || op.at.num_maxima() > 0) judge.vector(op.maxima, op.at.num_maxima(), DType::u8);
  judge.not_partial(op.out, kNonlinear);
  judge.held_as(op.out.place, {&op.codes, &op.maxima, &op.scales}, "as the matrix is");
}

}  // namespace weft::rules
