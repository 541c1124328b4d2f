// Rules of mixtures of experts.   t, E, k, n, G as in expert_ops.h
#include "weft/ops/rules_judge.h"

namespace weft::rules {
namespace {

// A tensor of indices: of so many elements, contiguous. Its placement says nothing.
template <class Op>
void check_indices(const Judge<Op>& judge, const Tensor& t, int64_t n) {
  judge.vector(t, n, DType::i32);
}

// Logits of a router: whole rows, of this rank's tokens or of everybody's.
template <class Op>
void check_router(const Op& op) {
  const Judge judge(op);
  judge.exist({&op.logits, &op.ids});
  judge.that(op.logits, op.logits.dtype == DType::f32 || op.logits.dtype == DType::f64, "should be f32 or f64");
  judge.that(op.logits, op.logits.cols() >= 1 && op.logits.cols() <= kMostExperts, "a router of too many experts");
  judge.that(op.ids, op.ids.rows() == op.logits.rows() && op.ids.cols() >= 1 && op.ids.cols() <= op.logits.cols(),
             "should be [tokens, experts of each]");
  check_indices(judge, op.ids, op.ids.rows() * op.ids.cols());
  judge.held_where(
      op.logits, [&](Axis a) { return op.logits.place[a] != Spmd::Partial && op.logits.place[a] != Spmd::Shard1; },
      "a router chooses among all experts");
}

template <class Op>
void check_routing(const Op& op) {
  const Judge judge(op);
  const Routing& r = op.routing;
  judge.that(op.logits, r.groups >= 1 && r.groups <= kMostExpertGroups && op.logits.cols() % r.groups == 0,
             "its experts are not in equal groups");
  judge.that(op.logits, r.top_groups >= 1 && r.top_groups <= r.groups, "there are not so many groups");
  judge.that(op.ids, op.ids.cols() <= op.logits.cols() / r.groups * r.top_groups, "so many groups have not so many");
}

// The numbers of samples, of which the tokens here are some.
template <class Op>
void check_load(const Op& op, int64_t first, int64_t sample_tokens) {
  const Judge judge(op);
  judge.that(op.load, op.load && sample_tokens >= 1 && first >= 0, "samples have no tokens");
  const int64_t samples = (first + op.logits.rows() + sample_tokens - 1) / sample_tokens;
  judge.that(op.load, op.load.rows() >= samples, "has not all samples of these tokens");
  judge.matrix(op.load, op.load.rows(), op.logits.cols(), op.logits.dtype);
  judge.not_partial(op.load, "a sum over ranks is not complete");
}

struct GroupedRow {
  Spmd x, w, out;
};
// What all axes allow but ep, where each rank has rows and weights of its own experts.
constexpr GroupedRow kWhole[] = {{Spmd::None, Spmd::None, Spmd::None},
                                 {Spmd::Shard0, Spmd::Replicate, Spmd::Shard0},
                                 {Spmd::Invariant, Spmd::Invariant, Spmd::Invariant},
                                 {Spmd::Replicate, Spmd::Replicate, Spmd::Replicate},
                                 {Spmd::Partial, Spmd::Replicate, Spmd::Partial}};
constexpr GroupedRow kForward[] = {{Spmd::Replicate, Spmd::Shard0, Spmd::Shard1},
                                   {Spmd::Shard1, Spmd::Shard1, Spmd::Partial}};
constexpr GroupedRow kTurned[] = {{Spmd::Shard1, Spmd::Shard0, Spmd::Partial},
                                  {Spmd::Replicate, Spmd::Shard1, Spmd::Shard1}};
constexpr GroupedRow kGradients[] = {  // dy, x, dw
    {Spmd::None, Spmd::None, Spmd::None},
    {Spmd::Shard0, Spmd::Shard0, Spmd::Partial},
    {Spmd::Invariant, Spmd::Invariant, Spmd::Invariant},
    {Spmd::Shard1, Spmd::Replicate, Spmd::Shard0},
    {Spmd::Replicate, Spmd::Shard1, Spmd::Shard1},
    {Spmd::Replicate, Spmd::Partial, Spmd::Partial},
    {Spmd::Partial, Spmd::Replicate, Spmd::Partial}};
constexpr GroupedRow kOfEp[] = {{Spmd::None, Spmd::None, Spmd::None}, {Spmd::Shard0, Spmd::Shard0, Spmd::Shard0}};

template <size_t n>
bool is_among(const GroupedRow (&rows)[n], Axis a, const Tensor& x, const Tensor& w, const Tensor& out) {
  for (const GroupedRow& row : rows)
    if (row.x == x.place[a] && row.w == w.place[a] && row.out == out.place[a]) return true;
  return false;
}

template <class Op>
void check_groups(const Op& op, const Tensor& weights) {
  const Judge judge(op);
  judge.that(op.offsets, op.offsets && op.offsets.elements() >= 2, "should say where the rows of each expert end");
  check_indices(judge, op.offsets, op.offsets.elements());
  judge.that(weights, weights.rows() % op.groups() == 0, "has not as many rows for each expert");
  judge.that(weights, weights.contiguous(), "should be contiguous");
}

template <class Op>
void check_scaled(const Op& op) {
  const Judge judge(op);
  judge.compute(op.x);
  judge.vector(op.scale, op.x.rows(), stat_of(op.x.dtype));
  judge.not_partial(op.x, "a product with a sum over ranks that is not complete");
  judge.held(
      op.scale, [&](Axis a) { return op.x.place[a] == Spmd::Shard1 ? Spmd::Replicate : op.x.place[a]; },
      "one number for each row of x");
}

}  // namespace

void check(const Route& op) {
  const Judge judge(op);
  check_router(op);
  check_routing(op);
  if (op.bias) judge.vector(op.bias, op.logits.cols(), op.logits.dtype);
  if (op.weights) judge.matrix(op.weights, op.ids.rows(), op.ids.cols(), op.logits.dtype);
  judge.held_as(op.logits.place, {&op.weights}, "as logits are");
}

void check(const RouteBackward& op) {
  const Judge judge(op);
  check_router(op);
  check_routing(op);
  check_load(op, op.balance.first, op.balance.sample_tokens);
  judge.matrix(op.dweights, op.ids.rows(), op.ids.cols(), op.logits.dtype);
  if (op.whole) judge.vector(op.whole, op.logits.cols(), op.logits.dtype);
  judge.compute(op.dlogits);
  judge.that(op.dlogits, stat_of(op.dlogits.dtype) == op.logits.dtype,
             "should be a compute dtype whose stats are as logits");
  judge.matrix(op.dlogits, op.logits.rows(), op.logits.cols(), op.dlogits.dtype);
  judge.held_as(op.logits.place.dual(), {&op.dweights, &op.dlogits}, "as the gradient is");
}

void check(const RouterSums& op) {
  check_router(op);
  check_load(op, op.first, op.sample_tokens);
  Judge(op).vector(op.sums, RouterSums::size(op.logits.cols()), DType::f64);
}

void check(const ExpertLoad& op) {
  const Judge judge(op);
  judge.exist({&op.ids, &op.load});
  check_indices(judge, op.ids, op.ids.rows() * op.ids.cols());
  judge.that(op.load, op.load.dtype == DType::f32 || op.load.dtype == DType::f64, "should be f32 or f64");
  judge.that(op.load, op.sample_tokens >= 1 && op.load.rows() * op.sample_tokens >= op.ids.rows(),
             "has not all samples of these tokens");
  judge.matrix(op.load, op.load.rows(), op.load.cols(), op.load.dtype);
}

void check(const GroupRows& op) {
  const Judge judge(op);
  judge.exist({&op.ids, &op.order, &op.places, &op.offsets});
  const int64_t pairs = op.ids.rows() * op.ids.cols();
  for (const Tensor* t : {&op.ids, &op.order, &op.places}) check_indices(judge, *t, pairs);
  check_indices(judge, op.offsets, op.offsets.elements());
  judge.that(op.offsets, op.offsets.elements() >= 2, "should say where the rows of each expert end");
}

void check(const GatherRows& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.order, &op.out});
  judge.compute(op.x);
  judge.that(op.x, op.per >= 1, "rows are of no pairs");
  judge.matrix(op.out, op.order.elements(), op.x.cols(), op.x.dtype);
  check_indices(judge, op.order, op.order.elements());
  judge.held_as(op.x.place, {&op.out}, "as x is");
}

void check(const SumRows& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.places, &op.out});
  judge.compute(op.x);
  judge.matrix(op.out, op.places.rows(), op.x.cols(), op.x.dtype);
  check_indices(judge, op.places, op.places.elements());
  judge.held_as(op.x.place, {&op.out}, "as x is");
}

void check(const ScaleRows& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.scale, &op.y});
  check_scaled(op);
  judge.like(op.x, {&op.y});
  judge.held_as(op.x.place, {&op.y}, "as x is");
}

void check(const ScaleRowsBackward& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.scale, &op.dy, &op.dx, &op.dscale});
  check_scaled(op);
  judge.like(op.x, {&op.dy, &op.dx});
  judge.vectors_like(op.scale, {&op.dscale});
  judge.held_as(op.x.place.dual(), {&op.dy, &op.dx}, "as the gradient is");
  judge.held_as(op.scale.place.dual(), {&op.dscale}, "as the gradient is");
}

void check(const GroupedMatmul& op) {
  const Judge judge(op);
  judge.exist({&op.x, &op.w, &op.out});
  judge.compute(op.x);
  check_groups(op, op.w);
  const int64_t wide = op.rows_of_group(), in = op.turned ? wide : op.w.cols(), out = op.turned ? op.w.cols() : wide;
  judge.matrix(op.x, op.x.rows(), in, op.x.dtype);
  judge.matrix(op.w, op.w.rows(), op.w.cols(), op.x.dtype);
  judge.matrix(op.out, op.x.rows(), out, op.x.dtype);
  judge.held_where(
      op.x,
      [&](Axis a) {
        if (op.w.place.experts_are_cut() && op.x.place[a] == Spmd::Shard0 && op.w.place[a] == Spmd::Shard0)
          return is_among(kOfEp, a, op.x, op.w, op.out);
        return is_among(kWhole, a, op.x, op.w, op.out) ||
               (op.turned ? is_among(kTurned, a, op.x, op.w, op.out) : is_among(kForward, a, op.x, op.w, op.out));
      },
      "experts have no such product of rows held so");
}

void check(const GroupedWeightGrad& op) {
  const Judge judge(op);
  judge.exist({&op.dy, &op.x, &op.dw});
  judge.compute(op.x);
  check_groups(op, op.dw);
  judge.matrix(op.dy, op.x.rows(), op.rows_of_group(), op.x.dtype);
  judge.matrix(op.x, op.x.rows(), op.dw.cols(), op.x.dtype);
  judge.matrix(op.dw, op.dw.rows(), op.dw.cols(), stat_of(op.x.dtype));
  judge.held_where(
      op.dw,
      [&](Axis a) {
        if (op.dw.place[a] == Spmd::Shard0 && op.dy.place[a] == Spmd::Shard0)
          return is_among(kOfEp, a, op.dy, op.x, op.dw);
        return is_among(kGradients, a, op.dy, op.x, op.dw);
      },
      "the gradient of these parts is held otherwise");
}

}  // namespace weft::rules
