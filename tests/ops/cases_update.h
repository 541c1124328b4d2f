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
