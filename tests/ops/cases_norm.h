// Cases of normalization.   t tokens, d width, h heads of width e
#pragma once
#include <array>

#include "ops/trial.h"

namespace weft::testing {

struct NormCase {
  int64_t t, d;
  bool layer_norm = false, bias = false, delta = false, carry = false, accumulate = false, in_place = false;
};

inline std::string name_of_case(const NormCase& c) {
  return fmt::format("[{} {}] {}{}{}{}{}{}", c.t, c.d, c.layer_norm ? "layer" : "rms", c.bias ? " bias" : "",
                     c.delta ? " delta" : "", c.carry ? " carry" : "", c.accumulate ? " +=" : "",
                     c.in_place ? " in place" : "");
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
          .eps = 1e-5};
}

inline NormApply make_norm_apply(Operands& o, const NormCase& c) {
  const Norm f = make_norm(o, c);
  o.derive(f);
  return {.x = f.x, .w = f.w, .b = f.b, .mean = f.mean, .rstd = f.rstd, .y = o.act_out(c.t, c.d)};
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
          .accumulate = c.accumulate};
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
  const NormCase unbiased{.t = 9, .d = 40, .layer_norm = true};
  add_case(to, v, name_of_case(unbiased), [=](Operands& o) { return make_norm(o, unbiased); });
  add_case(to, v, name_of_case(unbiased), [=](Operands& o) { return make_norm_backward(o, unbiased); });
}

struct HeadNormCase {
  int64_t t, h, e;
  bool accumulate = false, in_place = false;
};
inline HeadNorm make_head_norm(Operands& o, const HeadNormCase& c) {
  return {.x = o.act(c.t, c.h * c.e),
          .w = o.weight({c.e}, normal(0.3, 1)),
          .y = o.act_out(c.t, c.h * c.e),
          .rstd = o.stats(c.t, c.h),
          .eps = 1e-6};
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
          .accumulate = c.accumulate};
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
  }
}

}  // namespace weft::testing
