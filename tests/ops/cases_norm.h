// Cases of normalization.   t tokens, d width, h heads of width e
#pragma once
#include <array>

#include "ops/trial.h"

namespace weft::testing {

struct NormCase {
  int64_t t, d;
  bool layer_norm = false, bias = false, delta = false, carry = false, accumulate = false, in_place = false;
  double offset = 0;
};

inline std::string name_of_case(const NormCase& c) {
  return fmt::format("[{} {}] {}{}{}{}{}{}{}", c.t, c.d, c.layer_norm ? "layer" : "rms", c.bias ? " bias" : "",
                     c.delta ? " delta" : "", c.carry ? " carry" : "", c.accumulate ? " +=" : "",
                     c.in_place ? " in place" : "", c.offset != 0 ? " offset" : "");
}

inline Norm make_norm(Operands& o, const NormCase& c) {
  const Tensor x = o.act(c.t, c.d, normal(1.5, 0.5));
  const Tensor delta = c.delta ? o.act(c.t, c.d) : Tensor{};
  return {.x = x,
          .delta = delta,
          .sum = !c.delta     ? Tensor{}
                 : c.in_place ? x
                              : o.act_out(c.t, c.d),
          .w = o.weight({c.d}, normal(0.3, 1)),
          .b = c.bias ? o.weight({c.d}) : Tensor{},
          .y = o.act_out(c.t, c.d),
          .mean = c.layer_norm ? o.stats(c.t) : Tensor{},
          .rstd = o.stats(c.t),
          .eps = 1e-5,
          .offset = c.offset};
}

inline NormApply make_norm_apply(Operands& o, const NormCase& c) {
  const Norm f = make_norm(o, c);
  o.derive(f);
  return {.x = f.x, .w = f.w, .b = f.b, .mean = f.mean, .rstd = f.rstd, .y = o.act_out(c.t, c.d), .offset = c.offset};
}

inline NormBackward make_norm_backward(Operands& o, const NormCase& c) {
  const Norm f = make_norm(o, c);
  o.derive(f);
  const Tensor dy = o.act(c.t, c.d), carry = c.carry ? o.act(c.t, c.d) : Tensor{};
  return {.x = f.x,
          .w = f.w,
          .mean = f.mean,
          .rstd = f.rstd,
          .dy = dy,
          .carry = carry,
          .dx = !c.in_place ? o.act_out(c.t, c.d)
                : c.carry   ? carry
                            : dy,
          .dw = o.gradient({c.d}, c.accumulate),
          .db = c.bias ? o.gradient({c.d}, c.accumulate) : Tensor{},
          .accumulate = c.accumulate,
          .offset = c.offset};
}

inline void add_norms(OpCases& to, const Variant& v) {
  for (const auto& size : std::vector<std::array<int64_t, 2>>{{1, 3}, {5, 33}, {67, 64}, {130, 257}, {300, 40}}) {
    const int64_t t = size[0], d = size[1];
    const NormCase rms{.t = t, .d = d}, layer{.t = t, .d = d, .layer_norm = true, .bias = true};
    for (NormCase c : {rms, layer}) {
      add_case(to, v, name_of_case(c), [c](Operands& o) { return make_norm(o, c); });
      add_case(to, v, name_of_case(c), [c](Operands& o) { return make_norm_apply(o, c); });
      for (bool in_place : {false, true}) {
        c.in_place = in_place;
        c.delta = true;
        add_case(to, v, name_of_case(c), [c](Operands& o) { return make_norm(o, c); });
        c.delta = false;
        for (bool carry : {false, true}) {
          c.carry = carry;
          c.accumulate = carry != in_place;
          add_case(to, v, name_of_case(c), [c](Operands& o) { return make_norm_backward(o, c); });
        }
        c.accumulate = c.carry = false;
      }
    }
  }
  const NormCase offset{.t = 33, .d = 40, .delta = true, .carry = true, .offset = 1};
  add_case(to, v, name_of_case(offset), [=](Operands& o) { return make_norm(o, offset); });
  add_case(to, v, name_of_case(offset), [=](Operands& o) { return make_norm_apply(o, offset); });
  add_case(to, v, name_of_case(offset), [=](Operands& o) { return make_norm_backward(o, offset); });
  const NormCase unbiased{.t = 9, .d = 40, .layer_norm = true};
  add_case(to, v, name_of_case(unbiased), [=](Operands& o) { return make_norm(o, unbiased); });
  add_case(to, v, name_of_case(unbiased), [=](Operands& o) { return make_norm_backward(o, unbiased); });
}

struct HeadNormCase {
  int64_t t, h, e;
  bool accumulate = false, in_place = false;
  double offset = 0;
};
inline HeadNorm make_head_norm(Operands& o, const HeadNormCase& c) {
  return {.x = o.act(c.t, c.h * c.e),
          .w = o.weight({c.e}, normal(0.3, 1)),
          .y = o.act_out(c.t, c.h * c.e),
          .rstd = o.stats(c.t, c.h),
          .eps = 1e-6,
          .offset = c.offset};
}
inline HeadNormBackward make_head_norm_backward(Operands& o, const HeadNormCase& c) {
  const HeadNorm f = make_head_norm(o, c);
  o.derive(f);
  const Tensor dy = o.act(c.t, c.h * c.e);
  return {.x = f.x,
          .w = f.w,
          .rstd = f.rstd,
          .dy = dy,
          .dx = c.in_place ? dy : o.act_out(c.t, c.h * c.e),
          .dw = o.gradient({c.e}, c.accumulate),
          .accumulate = c.accumulate,
          .offset = c.offset};
}

inline void add_head_norms(OpCases& to, const Variant& v) {
  for (const auto& size : std::vector<std::array<int64_t, 3>>{{1, 1, 2}, {3, 2, 5}, {65, 4, 16}, {130, 3, 64}}) {
    const int64_t t = size[0], h = size[1], e = size[2];
    HeadNormCase c{.t = t, .h = h, .e = e};
    const std::string name = fmt::format("[{} {}x{}]", t, h, e);
    add_case(to, v, name, [c](Operands& o) { return make_head_norm(o, c); });
    add_case(to, v, name, [c](Operands& o) { return make_head_norm_backward(o, c); });
    c.accumulate = c.in_place = true;
    add_case(to, v, name + " += in place", [c](Operands& o) { return make_head_norm_backward(o, c); });
    c.offset = 1;
    add_case(to, v, name + " offset", [c](Operands& o) { return make_head_norm(o, c); });
    add_case(to, v, name + " += in place offset", [c](Operands& o) { return make_head_norm_backward(o, c); });
  }
}

// Norms of rows of which another rank has the other half: the sums are of both.
inline HeadNorm make_cut_norm(Operands& o, const HeadNormCase& c) {
  HeadNorm op = make_head_norm(o, c);
  op.squares = o.stats(c.t, 1, uniform(double(c.e), 3 * double(c.e)));
  op.total = 2 * c.e;
  return op;
}
inline HeadNormBackward make_cut_norm_backward(Operands& o, const HeadNormCase& c) {
  HeadNormBackward op = make_head_norm_backward(o, c);
  op.dots = o.stats(c.t, 1, normal(2));
  op.total = 2 * c.e;
  return op;
}
inline void add_cut_norms(OpCases& to, const Variant& v) {
  for (const auto& size : std::vector<std::array<int64_t, 2>>{{1, 3}, {5, 33}, {67, 64}}) {
    const int64_t t = size[0], n = size[1];
    const HeadNormCase c{.t = t, .h = 1, .e = n};
    const std::string name = fmt::format("[{} {}]", t, n);
    add_case(to, v, name + " cut", [c](Operands& o) { return make_cut_norm(o, c); });
    add_case(to, v, name + " cut", [c](Operands& o) { return make_cut_norm_backward(o, c); });
    for (bool weighted : {false, true})
      add_case(to, v, name + (weighted ? " weighted" : ""), [=](Operands& o) {
        return RowDots{
            .x = o.act(t, n), .y = o.act(t, n), .w = weighted ? o.weight({n}) : Tensor{}, .out = o.stats(t, 1)};
      });
  }
}

}  // namespace weft::testing
