#include "weft/ops/cpu/norm.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

// What a row is scaled by, offset + w, and b.
template <class T>
struct Weights {
  const T *w, *b;
  float offset;
  template <class D>
  HWY_INLINE hn::Vec<D> at(D d, int64_t j) const {
    return hn::Add(hn::Set(d, offset), load(d, w + j));
  }
};
template <class T, class Op>
Weights<T> weights_of(const Op& op) {
  if constexpr (requires { op.b; })
    return {flat<T>(op.w), flat<T>(op.b), float(op.offset)};
  else
    return {flat<T>(op.w), nullptr, float(op.offset)};
}

// y = (x - mean) rstd (offset + w) + b
template <class T>
void scale_row(int64_t d, const T* x, const Weights<T>& w, float mean, float rstd, T* y) {
  for_each(d, [=](auto t, int64_t j) HWY_ATTR {
    const auto xhat = hn::Mul(hn::Sub(load(t, x + j), hn::Set(t, mean)), hn::Set(t, rstd));
    const auto scaled = w.b ? hn::MulAdd(xhat, w.at(t, j), load(t, w.b + j)) : hn::Mul(xhat, w.at(t, j));
    store(scaled, t, y + j);
  });
}

template <class T>
float rstd_of(int64_t d, const T* x, float mean, double eps) {
  const float squares = sum_of(d, [=](auto t, int64_t j) HWY_ATTR {
    const auto centered = hn::Sub(load(t, x + j), hn::Set(t, mean));
    return hn::Mul(centered, centered);
  });
  return float(1 / std::sqrt(double(squares) / double(d) + eps));
}

template <class T>
void norm_rows(const Norm& op, Range rows) {
  const auto x = rows_of<const T>(op.x), delta = rows_of<const T>(op.delta);
  const auto sum = rows_of<T>(op.sum), y = rows_of<T>(op.y);
  float *means = flat<float>(op.mean), *rstd = flat<float>(op.rstd);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* s = x[i];
    if (delta) {
      for_each(x.cols, [a = x[i], b = delta[i], to = sum[i]](auto t, int64_t j)
                           HWY_ATTR { store(hn::Add(load(t, a + j), load(t, b + j)), t, to + j); });
      s = sum[i];
    }
    float mean = 0;
    if (means) {
      mean = sum_of(x.cols, [s](auto t, int64_t j) HWY_ATTR { return load(t, s + j); }) / float(x.cols);
      means[i] = mean;
    }
    rstd[i] = rstd_of(x.cols, s, mean, op.eps);
    scale_row<T>(x.cols, s, weights_of<T>(op), mean, rstd[i], y[i]);
  }
}
void norm(const Norm& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { norm_rows<T>(op, rows); });
}

template <class T>
void norm_apply_rows(const NormApply& op, Range rows) {
  const auto x = rows_of<const T>(op.x);
  const auto y = rows_of<T>(op.y);
  const float *mean = flat<float>(op.mean), *rstd = flat<float>(op.rstd);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    scale_row<T>(x.cols, x[i], weights_of<T>(op), mean ? mean[i] : 0, rstd[i], y[i]);
}
void norm_apply(const NormApply& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { norm_apply_rows<T>(op, rows); });
}

// One row of a norm's backward pass.
template <class T>
struct RowBackward {
  int64_t d;
  const T* x;
  Weights<T> w;
  const T *dy, *carry;
  T* dx;
  float mean, rstd;
  bool centered;
  float *dw, *db;                  // added to
  const float* gx_mean = nullptr;  // given, where the row goes on elsewhere
};
// With xhat = (x - mean) rstd and g = (offset + w) dy:  dx = carry + rstd (g - mean(g) - xhat mean(g xhat)).
template <class T>
void row_backward(const RowBackward<T>& r) {
  float g_sum = 0;
  if (r.centered)
    g_sum = sum_of(r.d, [&](auto t, int64_t j) HWY_ATTR { return hn::Mul(r.w.at(t, j), load(t, r.dy + j)); });
  const float gx_sum = sum_of(r.d, [&](auto t, int64_t j) HWY_ATTR {
    const auto xhat = hn::Mul(hn::Sub(load(t, r.x + j), hn::Set(t, r.mean)), hn::Set(t, r.rstd));
    const auto dy = load(t, r.dy + j), product = hn::Mul(dy, xhat);
    store(hn::Add(load(t, r.dw + j), product), t, r.dw + j);
    if (r.db) store(hn::Add(load(t, r.db + j), dy), t, r.db + j);
    return hn::Mul(r.w.at(t, j), product);
  });
  const float g_mean = g_sum / float(r.d), gx_mean = r.gx_mean ? *r.gx_mean : gx_sum / float(r.d);
  for_each(r.d, [&](auto t, int64_t j) HWY_ATTR {
    const auto rstd = hn::Set(t, r.rstd);
    const auto xhat = hn::Mul(hn::Sub(load(t, r.x + j), hn::Set(t, r.mean)), rstd);
    const auto g = hn::MulSub(r.w.at(t, j), load(t, r.dy + j), hn::Set(t, g_mean));
    const auto inner = hn::NegMulAdd(xhat, hn::Set(t, gx_mean), g);
    store(r.carry ? hn::MulAdd(rstd, inner, load(t, r.carry + j)) : hn::Mul(rstd, inner), t, r.dx + j);
  });
}

template <class T>
void norm_backward_rows(const NormBackward& op, Range rows, float* part) {
  const auto x = rows_of<const T>(op.x), dy = rows_of<const T>(op.dy), carry = rows_of<const T>(op.carry);
  const auto dx = rows_of<T>(op.dx);
  const float *mean = flat<float>(op.mean), *rstd = flat<float>(op.rstd);
  const int64_t d = x.cols;
  std::fill_n(part, op.db ? 2 * d : d, 0.0f);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    row_backward<T>({.d = d,
                     .x = x[i],
                     .w = weights_of<T>(op),
                     .dy = dy[i],
                     .carry = carry ? carry[i] : nullptr,
                     .dx = dx[i],
                     .mean = mean ? mean[i] : 0,
                     .rstd = rstd[i],
                     .centered = mean != nullptr,
                     .dw = part,
                     .db = op.db ? part + d : nullptr});
  }
}
void norm_backward(const NormBackward& op, Range rows, float* part) {
  with_type_of(op.x, [&]<class T>() { norm_backward_rows<T>(op, rows, part); });
}

template <class T>
void head_norm_rows(const HeadNorm& op, Range rows) {
  const auto x = rows_of<const T>(op.x);
  const auto y = rows_of<T>(op.y);
  const auto rstd = rows_of<float>(op.rstd);
  const auto squares = rows_of<const float>(op.squares);
  const int64_t e = op.w.elements();
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t h = 0; h < rstd.cols; ++h) {
      rstd[i][h] = squares ? float(1 / std::sqrt(double(squares[i][0]) / double(op.total) + op.eps))
                           : rstd_of(e, x[i] + h * e, 0, op.eps);
      scale_row<T>(e, x[i] + h * e, weights_of<T>(op), 0, rstd[i][h], y[i] + h * e);
    }
  }
}
void head_norm(const HeadNorm& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { head_norm_rows<T>(op, rows); });
}

template <class T>
void head_norm_backward_rows(const HeadNormBackward& op, Range rows, float* part) {
  const auto x = rows_of<const T>(op.x), dy = rows_of<const T>(op.dy);
  const auto dx = rows_of<T>(op.dx);
  const auto rstd = rows_of<const float>(op.rstd), dots = rows_of<const float>(op.dots);
  const int64_t e = op.w.elements();
  std::fill_n(part, e, 0.0f);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t h = 0; h < rstd.cols; ++h) {
      const float gx_mean = dots ? rstd[i][h] * dots[i][0] / float(op.total) : 0;
      row_backward<T>({.d = e,
                       .x = x[i] + h * e,
                       .w = weights_of<T>(op),
                       .dy = dy[i] + h * e,
                       .carry = nullptr,
                       .dx = dx[i] + h * e,
                       .mean = 0,
                       .rstd = rstd[i][h],
                       .centered = false,
                       .dw = part,
                       .db = nullptr,
                       .gx_mean = dots ? &gx_mean : nullptr});
    }
  }
}
void head_norm_backward(const HeadNormBackward& op, Range rows, float* part) {
  with_type_of(op.x, [&]<class T>() { head_norm_backward_rows<T>(op, rows, part); });
}

// Turns v[j] with v[half + j], or v[2 j] with v[2 j + 1].
template <class T>
void turn_halves(T* v, int64_t half, const float* angle, float sign) {
  for_each(half, [=](auto t, int64_t j) HWY_ATTR {
    const auto c = load(t, angle + j), s = hn::Mul(hn::Set(t, sign), load(t, angle + half + j));
    const auto a = load(t, v + j), b = load(t, v + half + j);
    store(hn::NegMulAdd(b, s, hn::Mul(a, c)), t, v + j);
    store(hn::MulAdd(a, s, hn::Mul(b, c)), t, v + half + j);
  });
}
template <class T>
void turn_pairs(T* v, int64_t half, const float* angle, float sign) {
  for (int64_t j = 0; j < half; ++j) {
    const float c = angle[j], s = sign * angle[half + j], a = float(v[2 * j]), b = float(v[2 * j + 1]);
    v[2 * j] = T(a * c - b * s);
    v[2 * j + 1] = T(b * c + a * s);
  }
}
template <class T>
void row_dots_rows(const RowDots& op, Range rows) {
  const auto x = rows_of<const T>(op.x), y = rows_of<const T>(op.y);
  const auto out = rows_of<float>(op.out);
  const T* w = flat<T>(op.w);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    out[i][0] = sum_of(x.cols, [a = x[i], b = y[i], w](auto t, int64_t j) HWY_ATTR {
      const auto product = hn::Mul(load(t, a + j), load(t, b + j));
      return w ? hn::Mul(load(t, w + j), product) : product;
    });
}
void row_dots(const RowDots& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { row_dots_rows<T>(op, rows); });
}

template <class T>
void rope_rows(const Rope& op, Range rows) {
  const auto x = rows_of<T>(op.x);
  const auto table = rows_of<const float>(op.table);
  const float sign = op.inverse ? -1.0f : 1.0f;
  const auto turn = op.interleaved ? turn_pairs<T> : turn_halves<T>;
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (T* head = x[i]; head < x[i] + x.cols; head += op.head_dim())
      turn(head + op.first, table.cols / 2, table[op.positions.as<int32_t>()[i]], sign);
}
void rope(const Rope& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { rope_rows<T>(op, rows); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(norm);
HWY_EXPORT(norm_apply);
HWY_EXPORT(norm_backward);
HWY_EXPORT(head_norm);
HWY_EXPORT(head_norm_backward);
HWY_EXPORT(row_dots);
HWY_EXPORT(rope);
void norm(const Norm& op, Range rows) { HWY_DYNAMIC_DISPATCH(norm)(op, rows); }
void norm_apply(const NormApply& op, Range rows) { HWY_DYNAMIC_DISPATCH(norm_apply)(op, rows); }
void norm_backward(const NormBackward& op, Range rows, float* part) {
  HWY_DYNAMIC_DISPATCH(norm_backward)(op, rows, part);
}
void head_norm(const HeadNorm& op, Range rows) { HWY_DYNAMIC_DISPATCH(head_norm)(op, rows); }
void head_norm_backward(const HeadNormBackward& op, Range rows, float* part) {
  HWY_DYNAMIC_DISPATCH(head_norm_backward)(op, rows, part);
}
void row_dots(const RowDots& op, Range rows) { HWY_DYNAMIC_DISPATCH(row_dots)(op, rows); }
void rope(const Rope& op, Range rows) { HWY_DYNAMIC_DISPATCH(rope)(op, rows); }
}  // namespace weft::cpu
#endif
