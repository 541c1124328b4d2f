// Cases of mixtures of experts.   t tokens, E experts, k of a token, n rows, d, f widths
#pragma once
#include <array>

#include "ops/trial.h"

namespace weft::testing {

struct RouterCase {
  std::string name;
  int64_t t, experts, k;
  Routing routing = {};
  bool bias = false;
  int64_t sample = 4;      // tokens of a sample
  int64_t first = 0;       // token of them that is the first here
  bool far_below = false;  // logits so small that the sigmoids of f32 are 0
};
inline Tensor logits_of(Operands& o, const RouterCase& c) {
  return o.stats(c.t, c.experts, c.far_below ? uniform(-1000, -900) : normal(2));
}
inline std::vector<RouterCase> router_cases() {
  return {{"one of one", 1, 1, 1},
          {"softmax", 5, 4, 2},
          {"normalised", 9, 6, 3, {.normalise = true}},
          {"one of a token", 9, 6, 1, {.normalise = true}},
          {"of later samples", 6, 5, 2, {.normalise = true, .scale = 2.5}, false, 4, 6},
          {"sigmoid", 7, 8, 3, {.sigmoid = true, .normalise = true, .scale = 2.5}},
          {"sigmoid with bias", 33, 8, 2, {.sigmoid = true, .scale = 0.5}, true},
          {"groups by one", 33, 12, 4, {.groups = 4, .top_groups = 2}},
          {"groups by two",
           37,
           12,
           4,
           {.sigmoid = true, .normalise = true, .groups = 3, .top_groups = 2, .by_two = true},
           true},
          {.name = "sigmoids of 0",
           .t = 5,
           .experts = 6,
           .k = 2,
           .routing = {.sigmoid = true, .normalise = true},
           .bias = true,
           .far_below = true},
          {"large", 150, 67, 6, {.normalise = true}}};
}
inline int64_t samples_of(const RouterCase& c) { return (c.first + c.t + c.sample - 1) / c.sample; }

inline Route make_route(Operands& o, const RouterCase& c) {
  Route op{.logits = logits_of(o, c),
           .ids = o.index_out(Shape(c.t, c.k)),
           .weights = o.stats(c.t, c.k),
           .routing = c.routing};
  if (c.bias) op.bias = o.stats(c.experts, normal(0.2));
  return op;
}
// The experts of each token: some k of them, all different.
inline Tensor some_experts(Operands& o, const RouterCase& c) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < c.t; ++i)
    for (int64_t j = 0; j < c.k; ++j) ids.push_back(int32_t((i * i + j * (c.experts / c.k)) % c.experts));
  return o.index(ids, Placement()).reshape({c.t, c.k});
}
inline RouteBackward make_route_backward(Operands& o, const RouterCase& c, bool whole) {
  RouteBackward op{.logits = logits_of(o, c),
                   .ids = some_experts(o, c),
                   .dweights = o.stats(c.t, c.k, normal()),
                   .load = o.stats(samples_of(c), c.experts, uniform(0, 2)),
                   .dlogits = o.act_out(c.t, c.experts),
                   .routing = c.routing,
                   .balance = {.load_scale = 0.3, .z_scale = 0.01, .first = c.first, .sample_tokens = c.sample}};
  if (c.far_below) op.balance.z_scale = 0;  // the difference of such logits and their logsumexp is rounded by more
  if (whole) op.whole = o.stats(c.experts, uniform(0, 2)), op.balance.whole_scale = 0.2;
  return op;
}
inline void add_routers(OpCases& to, const Variant& v) {
  for (const RouterCase& c : router_cases()) {
    add_case(to, v, c.name, [c](Operands& o) { return make_route(o, c); });
    for (const bool whole : {false, true})
      add_case(to, v, c.name + (whole ? " and the whole" : ""),
               [=](Operands& o) { return make_route_backward(o, c, whole); });
    add_case(to, v, c.name, [c](Operands& o) {
      return RouterSums{.logits = logits_of(o, c),
                        .ids = some_experts(o, c),
                        .load = o.stats(samples_of(c), c.experts, uniform(0, 2)),
                        .sums = o.make(DType::f64, {RouterSums::size(c.experts)}, Placement(), normal()),
                        .sigmoid = c.routing.sigmoid,
                        .first = c.first,
                        .sample_tokens = c.sample};
    });
    for (const bool accumulate : {false, true})
      add_case(to, v, c.name + (accumulate ? " +=" : ""), [=](Operands& o) {
        return ExpertLoad{.ids = some_experts(o, c),
                          .load = o.stats(samples_of(c), c.experts, accumulate ? normal() : unwritten()),
                          .scale = accumulate ? 1 : 0.375,
                          .sample_tokens = c.sample,
                          .accumulate = accumulate};
      });
    add_case(to, v, c.name, [c](Operands& o) {
      return GroupRows{.ids = some_experts(o, c),
                       .order = o.index_out(Shape(c.t * c.k)),
                       .places = o.index_out(Shape(c.t, c.k)),
                       .offsets = o.index_out(Shape(c.experts + 1))};
    });
  }
}

// n numbers of [0, most), and some below 0.
inline Tensor some_places(Operands& o, int64_t n, int64_t most) {
  std::vector<int32_t> at;
  for (int64_t i = 0; i < n; ++i)
    at.push_back(i % 7 == 5 ? -1 : int32_t(random_bits(23, uint64_t(i)) % uint32_t(most)));
  return o.index(at, Placement());
}
struct RowsCase {
  int64_t t, k, n, d;
};
inline void add_expert_rows(OpCases& to, const Variant& v) {
  for (const RowsCase& c : {RowsCase{1, 1, 1, 1}, {5, 2, 10, 7}, {9, 3, 20, 33}, {64, 4, 256, 48}, {41, 8, 300, 301}}) {
    const std::string name = fmt::format("[{} {} {}] of {}", c.t, c.k, c.d, c.n);
    add_case(to, v, name, [c](Operands& o) {
      return GatherRows{
          .x = o.act(c.t, c.d), .order = some_places(o, c.n, c.t * c.k), .out = o.act_out(c.n, c.d), .per = c.k};
    });
    add_case(to, v, name + " numbers", [c](Operands& o) {
      return GatherRows{
          .x = o.stats(c.t * c.k, normal()), .order = some_places(o, c.n, c.t * c.k), .out = o.stats(c.n)};
    });
    add_case(to, v, name, [c](Operands& o) {
      return SumRows{.x = o.act(c.n, c.d),
                     .places = some_places(o, c.t * c.k, c.n).reshape({c.t, c.k}),
                     .out = o.act_out(c.t, c.d)};
    });
    for (const bool sigmoid : {false, true}) {
      const std::string kind = name + (sigmoid ? " sigmoid" : "");
      add_case(to, v, kind, [=](Operands& o) {
        return ScaleRows{
            .x = o.act(c.n, c.d), .scale = o.stats(c.n, normal()), .y = o.act_out(c.n, c.d), .sigmoid = sigmoid};
      });
      for (const bool in_place : {false, true})
        add_case(to, v, kind + (in_place ? " into dy" : ""), [=](Operands& o) {
          const Tensor dy = o.act(c.n, c.d);
          return ScaleRowsBackward{.x = o.act(c.n, c.d),
                                   .scale = o.stats(c.n, normal()),
                                   .dy = dy,
                                   .dx = in_place ? dy : o.act_out(c.n, c.d),
                                   .dscale = o.stats(c.n),
                                   .sigmoid = sigmoid};
        });
    }
  }
}

// Rows of experts, some of which have none, and perhaps rows behind the last one's.
struct GroupsCase {
  std::vector<int32_t> offsets;
  int64_t n, out, in;
  int64_t groups() const { return int64_t(offsets.size()) - 1; }
};
inline void add_grouped_products(OpCases& to, const Variant& v) {
  const std::vector<GroupsCase> cases{{{0, 1}, 1, 1, 1},
                                      {{0, 3, 3, 8}, 8, 5, 7},
                                      {{0, 0, 17, 20, 20}, 24, 13, 19},
                                      {{0, 2, 33, 70}, 70, 48, 65},
                                      {{0, 100, 101, 260}, 260, 130, 129},
                                      {{0, 40, 40, 299}, 304, 136, 72},
                                      {{0, 5, 150}, 150, 264, 200}};
  for (const GroupsCase& c : cases) {
    const std::string name = fmt::format("[{} {} {}] of {}", c.n, c.out, c.in, c.groups());
    for (const bool turned : {false, true})
      add_case(to, v, name + (turned ? " turned" : ""), [=](Operands& o) {
        return GroupedMatmul{.x = o.act(c.n, turned ? c.out : c.in),
                             .w = o.make_together({c.groups() * c.out, c.in}, normal()),
                             .offsets = o.index(c.offsets, Placement()),
                             .out = o.act_out(c.n, turned ? c.in : c.out),
                             .turned = turned};
      });
    for (const bool accumulate : {false, true})
      add_case(to, v, name + (accumulate ? " +=" : ""), [=](Operands& o) {
        return GroupedWeightGrad{.dy = o.act(c.n, c.out),
                                 .x = o.act(c.n, c.in),
                                 .offsets = o.index(c.offsets, Placement()),
                                 .dw = o.gradient_together({c.groups() * c.out, c.in}, accumulate),
                                 .accumulate = accumulate};
      });
  }
}

}  // namespace weft::testing
