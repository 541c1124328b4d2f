// The backward ops of experts are the derivatives of the forward ones: by each element of each input, to rounding.
#include <gtest/gtest.h>

#include "ops/cases_experts.h"
#include "ops/complex_step.h"
#include "ops/host_kernels.h"
#include "weft/ops/cpu/cpu_backend.h"

namespace weft {
namespace {

using testing::complex_step_error;
using testing::normal;
using testing::Operands;
using testing::RouterCase;

constexpr double kRounding = 1e-12;

struct GivenExperts {
  Operands o{DType::f64, 0};
  RefBackend ref{1};
};

TEST(ExpertGradient, OfWeightsThatARouterGives) {
  for (const RouterCase& c : testing::router_cases()) {
    if (c.t > 40) continue;
    GivenExperts s;
    const Route forward = testing::make_route(s.o, c);
    s.ref.run(forward);
    const Tensor dweights = s.o.stats(c.t, c.k, normal()), dlogits = s.o.act_out(c.t, c.experts);
    s.ref.run(RouteBackward{.logits = forward.logits,
                            .ids = forward.ids,
                            .dweights = dweights,
                            .load = s.o.stats(testing::samples_of(c), c.experts, normal()),
                            .dlogits = dlogits,
                            .routing = c.routing,
                            .balance = {.first = c.first, .sample_tokens = c.sample}});
    EXPECT_LT(complex_step_error(s.o, forward, {{forward.weights, dweights}}, {{forward.logits, dlogits}}), kRounding)
        << c.name;
  }
}

TEST(ExpertGradient, OfLossesThatBalanceARouter) {
  for (const RouterCase& c : testing::router_cases()) {
    if (c.t > 40) continue;
    GivenExperts s;
    const int64_t n = RouterSums::size(c.experts);
    const Tensor dsums = s.o.make(DType::f64, {n}, Placement(), normal());
    double* of = dsums.as<double>();
    of[2] = 0;  // the entropy is in no loss
    const Tensor whole = s.o.stats(c.experts, normal());
    for (int64_t e = 0; e < c.experts; ++e) of[n - c.experts + e] = 0.3 * whole.as<double>()[e];
    const RouterSums forward{.logits = s.o.stats(c.t, c.experts, normal(2)),
                             .ids = testing::some_experts(s.o, c),
                             .load = s.o.stats(testing::samples_of(c), c.experts, normal()),
                             .sums = s.o.make(DType::f64, {n}, Placement(), normal()),
                             .sigmoid = c.routing.sigmoid,
                             .first = c.first,
                             .sample_tokens = c.sample};
    const Tensor none = s.o.stats(c.t, c.k, normal(0)), dlogits = s.o.act_out(c.t, c.experts);
    s.ref.run(RouteBackward{
        .logits = forward.logits,
        .ids = forward.ids,
        .dweights = none,
        .load = forward.load,
        .whole = whole,
        .dlogits = dlogits,
        .routing = c.routing,
        .balance = {
            .load_scale = of[0], .whole_scale = 0.3, .z_scale = of[1], .first = c.first, .sample_tokens = c.sample}});
    EXPECT_LT(complex_step_error(s.o, forward, {{forward.sums, dsums}}, {{forward.logits, dlogits}}), kRounding)
        << c.name;
  }
}

TEST(ExpertGradient, OfRowsIsTheSumOfTheirTokens) {
  GivenExperts s;
  const RouterCase c{"", 5, 6, 2};
  const GroupRows group{.ids = testing::some_experts(s.o, c),
                        .order = s.o.index_out(Shape(10)),
                        .places = s.o.index_out(Shape(5, 2)),
                        .offsets = s.o.index_out(Shape(7))};
  s.ref.run(group);
  const Tensor x = s.o.act(5, 3), dx = s.o.act_out(5, 3), dy = s.o.act(10, 3);
  const GatherRows gather{.x = x, .order = group.order, .out = s.o.act_out(10, 3), .per = 2};
  s.ref.run(SumRows{.x = dy, .places = group.places, .out = dx});
  EXPECT_LT(complex_step_error(s.o, gather, {{gather.out, dy}}, {{x, dx}}), kRounding);
  const SumRows sum{.x = s.o.act(10, 3), .places = group.places, .out = s.o.act_out(5, 3)};
  const Tensor drows = s.o.act_out(10, 3), dout = s.o.act(5, 3);
  s.ref.run(GatherRows{.x = dout, .order = group.order, .out = drows, .per = 2});
  EXPECT_LT(complex_step_error(s.o, sum, {{sum.out, dout}}, {{sum.x, drows}}), kRounding);
}

TEST(ExpertGradient, OfScaledRows) {
  for (const bool sigmoid : {false, true}) {
    GivenExperts s;
    const ScaleRows f{.x = s.o.act(4, 3), .scale = s.o.stats(4, normal()), .y = s.o.act_out(4, 3), .sigmoid = sigmoid};
    const Tensor dy = s.o.act(4, 3), dx = s.o.act_out(4, 3), dscale = s.o.stats(4);
    s.ref.run(ScaleRowsBackward{.x = f.x, .scale = f.scale, .dy = dy, .dx = dx, .dscale = dscale, .sigmoid = sigmoid});
    EXPECT_LT(complex_step_error(s.o, f, {{f.y, dy}}, {{f.x, dx}, {f.scale, dscale}}), kRounding) << sigmoid;
  }
}

TEST(ExpertGradient, OfGroupedProducts) {
  GivenExperts s;
  const Tensor offsets = s.o.index(std::vector<int32_t>{0, 2, 2, 5}, Placement());
  const GroupedMatmul f{.x = s.o.act(6, 3), .w = s.o.weight({3 * 4, 3}), .offsets = offsets, .out = s.o.act_out(6, 4)};
  const Tensor dy = s.o.act(6, 4), dx = s.o.act_out(6, 3), dw = s.o.gradient({3 * 4, 3}, false);
  s.ref.run(GroupedMatmul{.x = dy, .w = f.w, .offsets = offsets, .out = dx, .turned = true});
  s.ref.run(GroupedWeightGrad{.dy = dy, .x = f.x, .offsets = offsets, .dw = dw});
  EXPECT_LT(complex_step_error(s.o, f, {{f.out, dy}}, {{f.x, dx}, {f.w, dw}}), kRounding);
}

TEST(ExpertRows, AreInTheOrderOfExpertsAndThenOfTokens) {
  GivenExperts s;
  const Tensor ids = s.o.index(std::vector<int32_t>{2, 0, 0, 2, 3, 0}, Placement()).reshape({3, 2});
  const GroupRows g{.ids = ids,
                    .order = s.o.index_out(Shape(6)),
                    .places = s.o.index_out(Shape(3, 2)),
                    .offsets = s.o.index_out(Shape(5))};
  s.ref.run(g);
  const auto values = [](const Tensor& t) {
    return std::vector<int32_t>(t.as<int32_t>(), t.as<int32_t>() + t.elements());
  };
  EXPECT_EQ(values(g.order), (std::vector<int32_t>{1, 2, 5, 0, 3, 4}));
  EXPECT_EQ(values(g.places), (std::vector<int32_t>{3, 0, 1, 4, 5, 2}));
  EXPECT_EQ(values(g.offsets), (std::vector<int32_t>{0, 3, 3, 5, 6}));
}

TEST(Router, ChoosesTheFirstOfEqualExperts) {
  GivenExperts s;
  const Route r{.logits = s.o.stats(1, 4, normal(0)), .ids = s.o.index_out(Shape(1, 2)), .weights = s.o.stats(1, 2)};
  s.ref.run(r);
  EXPECT_EQ(r.ids.as<int32_t>()[0], 0);
  EXPECT_EQ(r.ids.as<int32_t>()[1], 1);
  EXPECT_EQ(r.weights.as<double>()[0], 0.25);
}

Tensor numbers(GivenExperts& s, const std::vector<double>& values) {
  const Tensor t = s.o.stats(1, int64_t(values.size()));
  std::copy(values.begin(), values.end(), t.as<double>());
  return t;
}

TEST(Router, ChoosesByTheBiasAndWeighsWithoutIt) {
  GivenExperts s;
  const Route r{.logits = numbers(s, {0, 0, 3}),
                .bias = numbers(s, {0, 2, 0}).reshape({3}),
                .ids = s.o.index_out(Shape(1, 1)),
                .weights = s.o.stats(1, 1),
                .routing = {.sigmoid = true, .scale = 3}};
  s.ref.run(r);
  EXPECT_EQ(r.ids.as<int32_t>()[0], 1);
  EXPECT_EQ(r.weights.as<double>()[0], 1.5);
}

// Its weight is 1 whatever the logits are. Adam would make steps of what is left of rounding.
TEST(Router, TheOnlyExpertOfATokenHasNoSlopeToTheLastBit) {
  const auto expect_none = [](Backend& backend, DType t) {
    Operands o{t, 0};
    RouteBackward op = testing::make_route_backward(
        o, {.name = "", .t = 64, .experts = 5, .k = 1, .routing = {.normalise = true}}, false);
    op.balance.load_scale = op.balance.z_scale = 0;
    backend.run(op);
    for (int64_t i = 0; i < op.dlogits.elements(); ++i) EXPECT_EQ(testing::load(op.dlogits.data, t, i), 0.0) << i;
  };
  RefBackend ref(1);
  expect_none(ref, DType::f64);
  Arena workspace("workspace", 64);
  CpuBackend cpu({.threads = 1}, workspace);
  expect_none(cpu, DType::f32);
  testing::HostKernels gpu;
  expect_none(gpu, DType::f32);
}

TEST(Router, GroupsAreAsGoodAsTheirBestOrTheirTwoBest) {
  for (const bool by_two : {false, true}) {
    GivenExperts s;
    const Route r{.logits = numbers(s, {3, -3, 1, 1}),
                  .ids = s.o.index_out(Shape(1, 1)),
                  .routing = {.sigmoid = true, .groups = 2, .top_groups = 1, .by_two = by_two}};
    s.ref.run(r);
    EXPECT_EQ(r.ids.as<int32_t>()[0], by_two ? 2 : 0);
  }
}

}  // namespace
}  // namespace weft
