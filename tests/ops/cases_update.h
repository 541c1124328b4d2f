// Cases of reductions and optimizers: contiguous tensors only.
#pragma once
#include "ops/trial.h"

namespace weft::testing {

inline std::vector<int64_t> flat_sizes() { return {1, 7, 64, 1000, 30011}; }

inline void add_reductions(OpCases& to, const Variant& v) {
  for (int64_t n : flat_sizes()) {
    const std::string name = fmt::format("[{}]", n);
    // All of one sign, as losses are, so that biased rounding shows.
    add_case(to, v, name, [=](Operands& o) { return Sum{.x = o.stats(n, uniform(0.5, 1.5)), .out = o.scalar()}; });
    add_case(to, v, name, [=](Operands& o) { return SumSquares{.x = o.stats(n, normal(1e-3)), .out = o.scalar()}; });
    add_case(to, v, name + " f64", [=](Operands& o) {
      return Sum{.x = o.make(DType::f64, {n}, tokens(Spmd::Invariant), uniform(0.5, 1.5)), .out = o.scalar()};
    });
    for (bool stat : {true, false}) {
      const double most = v.compute == DType::f16 && !stat ? 65504 : 1e30;
      const auto some_bad = [=](Operands& o) {
        const Fill f = [=](uint64_t, int64_t i) {
          return i % 63 == 5 ? NAN : i % 200 == 11 ? -INFINITY : i % 200 == 12 ? INFINITY : most;
        };
        return CountNonfinite{.x = o.make(stat ? o.stat() : o.compute(), {n}, tokens(Spmd::Invariant), f),
                              .out = o.scalar()};
      };
      add_case(to, v, name + (stat ? " stat" : " compute"), some_bad);
    }
  }
}

// Weights, gradients and states of an update, placed alike; `value` where masters and values are two things.
struct UpdateCase {
  int64_t n, step;
  double weight_decay, grad_scale, momentum = 0;
};
inline Tensor updated(Operands& o, int64_t n, const Fill& f) {
  return o.make(o.stat(), {n}, weights(Spmd::Invariant), f);
}
inline Tensor rounded_value(Operands& o, int64_t n) {
  return is_narrow(o.compute()) ? o.weight({n}, unwritten()) : Tensor{};
}
inline AdamW make_adamw(Operands& o, const UpdateCase& c) {
  const bool first = c.step == 1;
  return {.w = updated(o, c.n, normal(0.02)),
          .grad = updated(o, c.n, normal(1e-3 / std::min(1.0, c.grad_scale * 1e6))),  // huge where it is clipped hard
          .m = updated(o, c.n, first ? uniform(0, 0) : normal(1e-3)),
          .v = updated(o, c.n, first ? uniform(0, 0) : uniform(0, 1e-6)),
          .value = rounded_value(o, c.n),
          .lr = 3e-4,
          .weight_decay = c.weight_decay,
          .grad_scale = c.grad_scale,
          .step = c.step};
}
inline Sgd make_sgd(Operands& o, const UpdateCase& c) {
  return {.w = updated(o, c.n, normal(0.02)),
          .grad = updated(o, c.n, normal(1e-3)),
          .buf = updated(o, c.n, c.step == 1 ? unwritten() : normal(1e-3)),
          .value = rounded_value(o, c.n),
          .lr = 0.1,
          .momentum = c.momentum,
          .weight_decay = c.weight_decay,
          .grad_scale = c.grad_scale,
          .step = c.step};
}
// Moments in 8 bits, of a part of a tensor; codes of all sizes, and a block that has had no gradient yet.
struct CodesCase {
  std::string name;
  int64_t n;
  CodeBlocks at;
  int64_t step = 7;
  double weight_decay = 0.1, grad_scale = 0.37;
};
inline Tensor scales(Operands& o, const CodesCase& c, double size) {
  return updated(o, c.at.num_blocks(c.n), [=, step = c.step](uint64_t key, int64_t i) {
    return step == 1 || i % 5 == 3 ? 0 : size * (0.5 + random_uniform(key, uint64_t(i)));
  });
}
template <class Op>
Op with_codes(Operands& o, const CodesCase& c) {
  Op op{};
  op.grad = updated(o, c.n, normal(1e-3));
  op.m = o.codes(c.n, [&](int64_t i) { return c.step == 1 ? kCodes / 2 - 1 : int(i * 37 % kCodes); });
  op.v = o.codes(c.n, [&](int64_t i) { return c.step == 1 ? 0 : int(i * 101 % kCodes); });
  op.m_absmax = scales(o, c, 1e-3), op.v_absmax = scales(o, c, 1e-6);
  op.at = c.at;
  op.grad_scale = c.grad_scale;
  return op;
}
inline AdamW8Max make_adamw8_max(Operands& o, const CodesCase& c) {
  AdamW8Max op = with_codes<AdamW8Max>(o, c);
  op.m_max = updated(o, c.at.num_blocks(c.n), unwritten()), op.v_max = updated(o, c.at.num_blocks(c.n), unwritten());
  return op;
}
inline AdamW8 make_adamw8(Operands& o, const CodesCase& c) {
  AdamW8 op = with_codes<AdamW8>(o, c);
  op.m_max = updated(o, c.at.num_blocks(c.n), normal()), op.v_max = updated(o, c.at.num_blocks(c.n), normal());
  op.w = updated(o, c.n, normal(0.02));
  op.value = rounded_value(o, c.n);
  op.lr = 3e-4, op.weight_decay = c.weight_decay, op.step = c.step;
  o.derive(AdamW8Max{.grad = op.grad,
                     .m = op.m,
                     .v = op.v,
                     .m_absmax = op.m_absmax,
                     .v_absmax = op.v_absmax,
                     .m_max = op.m_max,
                     .v_max = op.v_max,
                     .at = op.at,
                     .beta1 = op.beta1,
                     .beta2 = op.beta2,
                     .grad_scale = op.grad_scale});
  return op;
}
inline std::vector<CodesCase> codes_cases() {
  return {{"alone", 1, {}},
          {"whole", 30011, {.cols = 30011, .stride = 30011}},
          {"first step", 1000, {.cols = 1000, .stride = 1000}, 1, 0, 1},
          {"a run", 1500, {.origin = 700, .cols = 100, .stride = 100, .first = 33}, 5000},
          {"columns", 1400, {.origin = 13, .cols = 7, .stride = 21, .first = 5}},
          {"wide columns", 3000, {.origin = 900, .cols = 300, .stride = 900, .first = 299}},
          {"far columns", 40, {.origin = 5000, .cols = 2, .stride = 1000, .first = 1}}};
}
inline void add_codes(OpCases& to, const Variant& v) {
  for (const CodesCase& c : codes_cases()) {
    add_case(to, v, c.name, [c](Operands& o) { return make_adamw8_max(o, c); });
    add_case(to, v, c.name, [c](Operands& o) { return make_adamw8(o, c); });
  }
  for (const int64_t n : {1, 7, 1000})
    add_case(to, v, fmt::format("[3, {}]", n), [n](Operands& o) {
      return MaxRows{.x = o.make(o.stat(), {3, n}, weights(Spmd::Invariant), normal()),
                     .out = updated(o, n, unwritten())};
    });
}

// Frozen matrices in codes: whole ones, rows and columns of some, widths that are odd or no multiple of a block.
inline Dequantise make_dequantise(Operands& o, const CodedRectangle& at) {
  const auto some = [&](int64_t n, int step) { return o.codes(n, [=](int64_t i) { return int(i * step % kCodes); }); };
  return {.codes = some(at.num_codes(), 37),
          .maxima = at.num_maxima() > 0 ? some(at.num_maxima(), 101) : Tensor{},
          .scales = o.stat_weight({at.num_scales()}, uniform(0.5, 1.5)),
          .out = o.weight({at.rows, at.cols}, unwritten()),
          .at = at};
}
inline void add_dequantise(OpCases& to, const Variant& v) {
  struct Case {
    const char* name;
    int64_t rows, cols, origin, stride;
  };
  for (const Case& c : {Case{"one", 1, 1, 0, 1}, Case{"whole", 30, 48, 0, 48}, Case{"odd", 17, 67, 0, 67},
                        Case{"rows", 9, 100, 1300, 100}, Case{"columns", 40, 21, 63, 130},
                        Case{"far columns", 300, 3, 16000, 257}, Case{"large", 130, 520, 0, 520}})
    for (const WeightCodes as : {WeightCodes::nf4, WeightCodes::int8})
      add_case(to, v, fmt::format("{} {}", as == WeightCodes::nf4 ? "nf4" : "int8", c.name), [=](Operands& o) {
        return make_dequantise(o, {.as = as, .rows = c.rows, .cols = c.cols, .origin = c.origin, .stride = c.stride});
      });
}

inline void add_updates(OpCases& to, const Variant& v) {
  for (int64_t n : flat_sizes()) {
    for (const UpdateCase& c : {UpdateCase{n, 1, 0.1, 1, 0.9}, UpdateCase{n, 2, 0, 0.37, 0},
                                UpdateCase{n, 5000, 0.1, 0.37, 0.9}, UpdateCase{n, 1, 0, 1e-26, 0}}) {
      const std::string name = fmt::format("[{}] step {} scale {}", n, c.step, c.grad_scale);
      add_case(to, v, name, [c](Operands& o) { return make_adamw(o, c); });
      add_case(to, v, name, [c](Operands& o) { return make_sgd(o, c); });
    }
  }
}

}  // namespace weft::testing
