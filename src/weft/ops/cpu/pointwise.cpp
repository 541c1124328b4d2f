#include "weft/ops/cpu/pointwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/pointwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

// (1 + tanh(z)) / 2 = sigmoid(2 z),  z = sqrt(2 / pi) (x + 0.044715 x^3)
constexpr float kTwiceRoot = 1.59576912161f;  // 2 sqrt(2 / pi)
template <class D, class V>
HWY_INLINE Sigmoid<D> gelu_sigmoid(D d, V x) {
  const auto inner = hn::MulAdd(hn::Mul(hn::Mul(x, x), hn::Set(d, 0.044715f)), x, x);
  return sigmoid(d, hn::Mul(hn::Set(d, kTwiceRoot), inner));
}

template <class T>
void gelu_of(const Gelu& op, Range elements) {
  const auto x = rows_of<const T>(op.x);
  const auto y = rows_of<T>(op.y);
  const int64_t cols = run_cols(op.x, op.y);
  for_runs(elements, cols, [&](int64_t i, int64_t first, int64_t n) {
    const T* from = x[i] + first;
    T* to = y[i] + first;
    for_each(n, [=, exact = op.exact](auto t, int64_t j) HWY_ATTR {
      const auto v = load(t, from + j);
      store(hn::Mul(v, exact ? gaussian(t, v).cumulative : gelu_sigmoid(t, v).s), t, to + j);
    });
  });
}
void gelu(const Gelu& op, Range elements) {
  with_type_of(op.x, [&]<class T>() { gelu_of<T>(op, elements); });
}

template <class D, class V>
HWY_INLINE V gelu_slope(D d, V x, bool exact) {
  if (exact) {
    const auto g = gaussian(d, x);
    return hn::MulAdd(x, g.density, g.cumulative);
  }
  const auto s = gelu_sigmoid(d, x);
  const auto slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 3 * 0.044715f * kTwiceRoot), hn::Set(d, kTwiceRoot));
  return hn::MulAdd(hn::Mul(s.s, s.one_minus_s), hn::Mul(x, slope), s.s);
}
template <class T>
void gelu_backward_of(const GeluBackward& op, Range elements) {
  const auto x = rows_of<const T>(op.x), dy = rows_of<const T>(op.dy);
  const auto dx = rows_of<T>(op.dx);
  for_runs(elements, run_cols(op.x, op.dy, op.dx), [&](int64_t i, int64_t first, int64_t n) {
    const T *from = x[i] + first, *grad = dy[i] + first;
    T* to = dx[i] + first;
    for_each(n, [=, exact = op.exact](auto t, int64_t j) HWY_ATTR {
      store(hn::Mul(load(t, grad + j), gelu_slope(t, load(t, from + j), exact)), t, to + j);
    });
  });
}
void gelu_backward(const GeluBackward& op, Range elements) {
  with_type_of(op.x, [&]<class T>() { gelu_backward_of<T>(op, elements); });
}

// A gate's function f(x) and slope.
template <class D, class V = hn::Vec<D>>
struct Gate {
  V value, slope;
};
template <class D, class V>
HWY_INLINE Gate<D> gate_of(D d, V x, GateKind kind) {
  if (kind == GateKind::gelu_tanh) return {hn::Mul(x, gelu_sigmoid(d, x).s), gelu_slope(d, x, false)};
  const auto s = sigmoid(d, x);
  return {hn::Mul(x, s.s), hn::Mul(s.s, hn::MulAdd(x, s.one_minus_s, hn::Set(d, 1.0f)))};
}

// The factors of a clamped unit, and their slopes by gate and up. What is not a number stays so.
template <class D, class V = hn::Vec<D>>
struct Clamped {
  V f, up, f_slope, up_slope;
};
template <class D, class V>
HWY_INLINE Clamped<D> clamped(D d, V gate, V up, float limit) {
  const auto most = hn::Set(d, limit), least = hn::Set(d, -limit), one = hn::Set(d, 1.0f), zero = hn::Zero(d);
  const auto above = hn::Gt(gate, most), outside = hn::Gt(hn::Abs(up), most);
  const auto g = hn::IfThenElse(above, most, gate);
  const auto u = hn::IfThenElse(outside, hn::IfThenElse(hn::Gt(up, zero), most, least), up);
  const auto s = sigmoid(d, hn::Mul(hn::Set(d, float(kClampedSlope)), g));
  const auto slope = hn::Mul(s.s, hn::MulAdd(hn::Mul(hn::Set(d, float(kClampedSlope)), g), s.one_minus_s, one));
  return {hn::Mul(g, s.s), hn::Add(u, one), hn::IfThenElse(above, zero, slope), hn::IfThenElse(outside, zero, one)};
}

// Gates and ups that take turns, so many at a time.
constexpr int64_t kPairs = 64;
struct Pairs {
  float gate[kPairs], up[kPairs];
};
template <class T>
void take_apart(const T* u, int64_t n, Pairs& to) {
  for (int64_t k = 0; k < n; ++k) to.gate[k] = float(u[2 * k]), to.up[k] = float(u[2 * k + 1]);
}

template <class T>
void clamped_unit_of(const GatedUnit& op, Range elements) {
  const auto u = rows_of<const T>(op.u);
  const auto a = rows_of<T>(op.a);
  for_runs(elements, a.cols, [&](int64_t i, int64_t first, int64_t n) {
    Pairs pairs;
    for (int64_t at = first; at < first + n; at += kPairs) {
      const int64_t count = std::min(kPairs, first + n - at);
      take_apart(u[i] + 2 * at, count, pairs);
      for_each(count, [&, to = a[i] + at](auto t, int64_t k) HWY_ATTR {
        const auto c = clamped(t, hn::LoadU(t, pairs.gate + k), hn::LoadU(t, pairs.up + k), float(op.limit));
        store(hn::Mul(c.f, c.up), t, to + k);
      });
    }
  });
}

template <class T>
void clamped_unit_backward_of(const GatedUnitBackward& op, Range elements) {
  const auto u = rows_of<const T>(op.u), da = rows_of<const T>(op.da);
  const auto du = rows_of<T>(op.du);
  for_runs(elements, da.cols, [&](int64_t i, int64_t first, int64_t n) {
    Pairs pairs;
    for (int64_t at = first; at < first + n; at += kPairs) {
      const int64_t count = std::min(kPairs, first + n - at);
      take_apart(u[i] + 2 * at, count, pairs);
      for_each(count, [&, grad = da[i] + at](auto t, int64_t k) HWY_ATTR {
        const auto d = load(t, grad + k);
        const auto c = clamped(t, hn::LoadU(t, pairs.gate + k), hn::LoadU(t, pairs.up + k), float(op.limit));
        hn::StoreU(hn::Mul(hn::Mul(d, c.up), c.f_slope), t, pairs.gate + k);
        hn::StoreU(hn::Mul(hn::Mul(d, c.f), c.up_slope), t, pairs.up + k);
      });
      T* to = du[i] + 2 * at;
      for (int64_t k = 0; k < count; ++k) to[2 * k] = T(pairs.gate[k]), to[2 * k + 1] = T(pairs.up[k]);
    }
  });
}

template <class T>
void gated_unit_of(const GatedUnit& op, Range elements) {
  if (op.kind == GateKind::clamped) return clamped_unit_of<T>(op, elements);
  const auto u = rows_of<const T>(op.u);
  const auto a = rows_of<T>(op.a);
  for_runs(elements, a.cols, [&](int64_t i, int64_t first, int64_t n) {
    const T *gate = u[i] + first, *up = gate + a.cols;
    for_each(n, [=, kind = op.kind, to = a[i] + first](auto t, int64_t j) HWY_ATTR {
      store(hn::Mul(gate_of(t, load(t, gate + j), kind).value, load(t, up + j)), t, to + j);
    });
  });
}
void gated_unit(const GatedUnit& op, Range elements) {
  with_type_of(op.u, [&]<class T>() { gated_unit_of<T>(op, elements); });
}

template <class T>
void gated_unit_backward_of(const GatedUnitBackward& op, Range elements) {
  if (op.kind == GateKind::clamped) return clamped_unit_backward_of<T>(op, elements);
  const auto u = rows_of<const T>(op.u), da = rows_of<const T>(op.da);
  const auto du = rows_of<T>(op.du);
  for_runs(elements, da.cols, [&](int64_t i, int64_t first, int64_t n) {
    const T *gate = u[i] + first, *up = gate + da.cols, *grad = da[i] + first;
    T *dgate = du[i] + first, *dup = dgate + da.cols;
    for_each(n, [=, kind = op.kind](auto t, int64_t j) HWY_ATTR {
      const auto d = load(t, grad + j), times_up = hn::Mul(d, load(t, up + j));
      const auto g = gate_of(t, load(t, gate + j), kind);
      store(hn::Mul(d, g.value), t, dup + j);
      store(hn::Mul(times_up, g.slope), t, dgate + j);
    });
  });
}
void gated_unit_backward(const GatedUnitBackward& op, Range elements) {
  with_type_of(op.u, [&]<class T>() { gated_unit_backward_of<T>(op, elements); });
}

void soft_cap(const SoftCap& op, Range elements) {
  const auto x = rows_of<const float>(op.x);
  const auto y = rows_of<float>(op.y);
  for_runs(elements, run_cols(op.x, op.y), [&](int64_t i, int64_t first, int64_t n) {
    for_each(n, [cap = float(op.cap), from = x[i] + first, to = y[i] + first](auto t, int64_t j) HWY_ATTR {
      store(hn::Mul(hn::Set(t, cap), tanh(t, hn::Div(load(t, from + j), hn::Set(t, cap)))), t, to + j);
    });
  });
}

template <class T>
void soft_cap_backward_of(const SoftCapBackward& op, Range elements) {
  const auto y = rows_of<const float>(op.y);
  const auto dy = rows_of<const T>(op.dy);
  const auto dx = rows_of<T>(op.dx);
  for_runs(elements, run_cols(op.y, op.dy, op.dx), [&](int64_t i, int64_t first, int64_t n) {
    const float* at = y[i] + first;
    const T* grad = dy[i] + first;
    for_each(n, [=, cap = float(op.cap), to = dx[i] + first](auto t, int64_t j) HWY_ATTR {
      const auto part = hn::Div(load(t, at + j), hn::Set(t, cap));
      store(hn::Mul(load(t, grad + j), hn::NegMulAdd(part, part, hn::Set(t, 1.0f))), t, to + j);
    });
  });
}
void soft_cap_backward(const SoftCapBackward& op, Range elements) {
  with_type_of(op.dy, [&]<class T>() { soft_cap_backward_of<T>(op, elements); });
}

template <class T>
void add_row_of(const AddRow& op, Range rows) {
  const auto y = rows_of<T>(op.y);
  const T* b = flat<T>(op.b);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for_each(y.cols,
             [b, y = y[i]](auto t, int64_t j) HWY_ATTR { store(hn::Add(load(t, y + j), load(t, b + j)), t, y + j); });
}
void add_row(const AddRow& op, Range rows) {
  with_type_of(op.y, [&]<class T>() { add_row_of<T>(op, rows); });
}

template <class T>
void scale_columns_of(const ScaleColumns& op, Range rows) {
  const auto x = rows_of<const T>(op.x);
  const auto y = rows_of<T>(op.y);
  const float *w = flat<float>(op.w), *squares = flat<float>(op.squares);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for_each(y.cols, [=, from = x[i], to = y[i]](auto t, int64_t j) HWY_ATTR {
      auto v = load(t, from + j);
      if (w != nullptr) v = hn::Mul(v, load(t, w + j));
      if (squares != nullptr) v = hn::Div(v, hn::Sqrt(load(t, squares + j)));
      store(v, t, to + j);
    });
}
void scale_columns(const ScaleColumns& op, Range rows) {
  with_type_of(op.y, [&]<class T>() { scale_columns_of<T>(op, rows); });
}

template <class T>
void attention_merge_of(const AttentionMerge& op, Range rows) {
  const auto o = rows_of<const T>(op.o);
  const auto lse = rows_of<const float>(op.lse);
  const auto sum = rows_of<float>(op.sum), sum_lse = rows_of<float>(op.sum_lse);
  const int64_t e = o.cols / lse.cols;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t h = 0; h < lse.cols; ++h) {
      const float before = sum_lse[i][h], other = lse[i][h], most = std::max(before, other);
      const float all = most + std::log(std::exp(before - most) + std::exp(other - most));
      const float keep = std::exp(before - all), add = std::exp(other - all);
      for_each(e, [=, from = o[i] + h * e, to = sum[i] + h * e](auto t, int64_t j) HWY_ATTR {
        store(hn::MulAdd(hn::Set(t, keep), load(t, to + j), hn::Mul(hn::Set(t, add), load(t, from + j))), t, to + j);
      });
      sum_lse[i][h] = all;
    }
  }
}
void attention_merge(const AttentionMerge& op, Range rows) {
  with_type_of(op.o, [&]<class T>() { attention_merge_of<T>(op, rows); });
}

template <class T>
void add_of(const Add& op, Range elements) {
  const auto x = rows_of<const T>(op.x), y = rows_of<const T>(op.y);
  const auto out = rows_of<T>(op.out);
  for_runs(elements, run_cols(op.x, op.y, op.out), [&](int64_t i, int64_t first, int64_t n) {
    const T *a = x[i] + first, *b = y[i] + first;
    for_each(n, [=, to = out[i] + first](auto t, int64_t j)
                    HWY_ATTR { store(hn::Add(load(t, a + j), load(t, b + j)), t, to + j); });
  });
}
void add(const Add& op, Range elements) {
  with_type_of(op.x, [&]<class T>() { add_of<T>(op, elements); });
}

template <class T>
void axpby_of(const Axpby& op, Range elements) {
  const auto x = rows_of<const T>(op.x), y = rows_of<const T>(op.y);
  const auto out = rows_of<T>(op.out);
  const float a = float(op.a), b = float(op.b);
  for_runs(elements, run_cols(op.x, op.y, op.out), [&](int64_t i, int64_t first, int64_t n) {
    const T *p = x[i] + first, *q = y ? y[i] + first : nullptr;
    for_each(n, [=, to = out[i] + first](auto t, int64_t j) HWY_ATTR {
      const auto ax = hn::Mul(hn::Set(t, a), load(t, p + j));
      store(q ? hn::MulAdd(hn::Set(t, b), load(t, q + j), ax) : ax, t, to + j);
    });
  });
}
void axpby(const Axpby& op, Range elements) {
  with_type_of(op.x, [&]<class T>() { axpby_of<T>(op, elements); });
}

template <class From, class To>
void copy_of(const Copy& op, Range elements) {
  const auto from = rows_of<const From>(op.from);
  const auto to = rows_of<To>(op.to);
  for_runs(elements, run_cols(op.from, op.to), [&](int64_t i, int64_t first, int64_t n) {
    const From* source = from[i] + first;
    To* target = to[i] + first;
    if constexpr (std::is_same_v<From, To>)
      std::memcpy(target, source, size_t(n) * sizeof(To));
    else
      for_each(n, [=](auto t, int64_t j) HWY_ATTR { store(load(t, source + j), t, target + j); });
  });
}
void copy(const Copy& op, Range elements) {
  with_type_of(op.from,
               [&]<class From>() { with_type_of(op.to, [&]<class To>() { copy_of<From, To>(op, elements); }); });
}

template <class T>
void embed_of(const Embed& op, Range rows) {
  const auto table = rows_of<const T>(op.table);
  const auto out = rows_of<T>(op.out);
  const int32_t* ids = op.ids.as<int32_t>();
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t row = ids[i] - op.first;
    const bool here = row >= 0 && row < table.rows;
    T* to = out[i];
    if (here && op.accumulate)
      for_each(out.cols, [to, from = table[row]](auto t, int64_t j)
                             HWY_ATTR { store(hn::Add(load(t, to + j), load(t, from + j)), t, to + j); });
    else if (here)
      std::memcpy(to, table[row], size_t(out.cols) * sizeof(T));
    else if (!op.accumulate)
      std::fill_n(to, out.cols, T(0.0f));
  }
}
void embed(const Embed& op, Range rows) {
  with_type_of(op.out, [&]<class T>() { embed_of<T>(op, rows); });
}

template <class T>
void embed_backward_of(const EmbedBackward& op, Range columns) {
  const auto dy = rows_of<const T>(op.dy);
  const auto dtable = rows_of<float>(op.dtable);
  const int32_t* ids = op.ids.as<int32_t>();
  for (int64_t i = 0; i < dy.rows; ++i) {
    const int64_t row = ids[i] - op.first;
    if (row < 0 || row >= dtable.rows) continue;
    for_each(columns.size(), [from = dy[i] + columns.begin, to = dtable[row] + columns.begin](auto t, int64_t j)
                                 HWY_ATTR { store(hn::Add(load(t, to + j), load(t, from + j)), t, to + j); });
  }
}
void embed_backward(const EmbedBackward& op, Range columns) {
  with_type_of(op.dy, [&]<class T>() { embed_backward_of<T>(op, columns); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(gelu);
HWY_EXPORT(gelu_backward);
HWY_EXPORT(gated_unit);
HWY_EXPORT(gated_unit_backward);
HWY_EXPORT(soft_cap);
HWY_EXPORT(soft_cap_backward);
HWY_EXPORT(add);
HWY_EXPORT(axpby);
HWY_EXPORT(add_row);
HWY_EXPORT(scale_columns);
HWY_EXPORT(attention_merge);
HWY_EXPORT(copy);
HWY_EXPORT(embed);
HWY_EXPORT(embed_backward);
void gelu(const Gelu& op, Range elements) { HWY_DYNAMIC_DISPATCH(gelu)(op, elements); }
void gelu_backward(const GeluBackward& op, Range elements) { HWY_DYNAMIC_DISPATCH(gelu_backward)(op, elements); }
void gated_unit(const GatedUnit& op, Range elements) { HWY_DYNAMIC_DISPATCH(gated_unit)(op, elements); }
void gated_unit_backward(const GatedUnitBackward& op, Range elements) {
  HWY_DYNAMIC_DISPATCH(gated_unit_backward)(op, elements);
}
void soft_cap(const SoftCap& op, Range elements) { HWY_DYNAMIC_DISPATCH(soft_cap)(op, elements); }
void soft_cap_backward(const SoftCapBackward& op, Range elements) {
  HWY_DYNAMIC_DISPATCH(soft_cap_backward)(op, elements);
}
void add(const Add& op, Range elements) { HWY_DYNAMIC_DISPATCH(add)(op, elements); }
void axpby(const Axpby& op, Range elements) { HWY_DYNAMIC_DISPATCH(axpby)(op, elements); }
void add_row(const AddRow& op, Range rows) { HWY_DYNAMIC_DISPATCH(add_row)(op, rows); }
void scale_columns(const ScaleColumns& op, Range rows) { HWY_DYNAMIC_DISPATCH(scale_columns)(op, rows); }
void attention_merge(const AttentionMerge& op, Range rows) { HWY_DYNAMIC_DISPATCH(attention_merge)(op, rows); }
void copy(const Copy& op, Range elements) { HWY_DYNAMIC_DISPATCH(copy)(op, elements); }
void embed(const Embed& op, Range rows) { HWY_DYNAMIC_DISPATCH(embed)(op, rows); }
void embed_backward(const EmbedBackward& op, Range columns) { HWY_DYNAMIC_DISPATCH(embed_backward)(op, columns); }
}  // namespace weft::cpu
#endif
