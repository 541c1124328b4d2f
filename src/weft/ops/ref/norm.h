// Reference kernels: normalization, forward and backward.
#pragma once
#include <cmath>

#include "weft/ops/ref/view.h"

namespace weft::ref {

// A normalized row: of a token, or of one head of it.   xhat = (x - mean) rstd
template <class T>
struct Normalized {
  const T* x;
  int64_t width;
  T mean, rstd;
  T xhat(int64_t j) const { return (x[j] - mean) * rstd; }
};

template <class T>
Normalized<T> normalized(const T* x, int64_t width, bool centered, double eps) {
  T mean(0), squares(0);
  for (int64_t j = 0; j < width && centered; ++j) mean += x[j];
  mean /= double(width);
  for (int64_t j = 0; j < width; ++j) squares += (x[j] - mean) * (x[j] - mean);
  return {x, width, mean, 1.0 / std::sqrt(squares / double(width) + eps)};
}

// y = xhat (offset + w) + b
template <class T>
struct Weights {
  const T *w, *b;
  double offset;
  T at(int64_t j) const { return offset + w[j]; }
};
template <class T>
void scale_row(const Normalized<T>& n, const Weights<T>& w, T* y) {
  for (int64_t j = 0; j < n.width; ++j) y[j] = n.xhat(j) * w.at(j) + (w.b ? w.b[j] : T(0));
}

// With g = (offset + w) dy:  dx = carry + rstd (g - mean(g) - xhat mean(g xhat)), without mean(g) where x was not
// centered. mean(g xhat) is of the row, or as given. Adds to dw and db. dx may be dy or carry.
template <class T>
struct RowGradient {
  const T *dy, *carry;
  T *dx, *dw, *db;
  const T* gx_mean = nullptr;
};
template <class T>
void scale_row_backward(const Normalized<T>& n, const Weights<T>& w, bool centered, const RowGradient<T>& d) {
  T g_sum(0), gx_sum(0);
  for (int64_t j = 0; j < n.width; ++j) {
    if (centered) g_sum += w.at(j) * d.dy[j];
    gx_sum += w.at(j) * d.dy[j] * n.xhat(j);
    d.dw[j] += d.dy[j] * n.xhat(j);
    if (d.db) d.db[j] += d.dy[j];
  }
  const T g_mean = g_sum / double(n.width), gx_mean = d.gx_mean ? *d.gx_mean : gx_sum / double(n.width);
  for (int64_t j = 0; j < n.width; ++j) {
    const T inner = w.at(j) * d.dy[j] - g_mean - n.xhat(j) * gx_mean;
    d.dx[j] = (d.carry ? d.carry[j] : T(0)) + n.rstd * inner;
  }
}

template <class T>
void run(const Norm& op, int) {
  const auto x = rows<T>(op.x), delta = rows<T>(op.delta), sum = rows<T>(op.sum), y = rows<T>(op.y);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.cols && delta; ++j) sum[i][j] = x[i][j] + delta[i][j];
    const auto n = normalized<T>(delta ? sum[i] : x[i], x.cols, bool(op.mean), op.eps);
    if (op.mean) flat<T>(op.mean)[i] = n.mean;
    flat<T>(op.rstd)[i] = n.rstd;
    scale_row(n, {flat<T>(op.w), flat<T>(op.b), op.offset}, y[i]);
  }
}

template <class T>
Normalized<T> row_of(const Tensor& x, const Tensor& mean, const Tensor& rstd, int64_t i) {
  return {rows<T>(x)[i], x.cols(), mean ? flat<T>(mean)[i] : T(0), flat<T>(rstd)[i]};
}

template <class T>
void run(const NormApply& op, int) {
  for (int64_t i = 0; i < op.x.rows(); ++i)
    scale_row(row_of<T>(op.x, op.mean, op.rstd, i), {flat<T>(op.w), flat<T>(op.b), op.offset}, rows<T>(op.y)[i]);
}

template <class T>
void run(const NormBackward& op, int) {
  T *dw = flat<T>(op.dw), *db = flat<T>(op.db);
  if (!op.accumulate) std::fill_n(dw, op.x.cols(), T(0));
  if (!op.accumulate && db) std::fill_n(db, op.x.cols(), T(0));
  const auto carry = rows<T>(op.carry);
  for (int64_t i = 0; i < op.x.rows(); ++i) {
    scale_row_backward<T>(row_of<T>(op.x, op.mean, op.rstd, i), {flat<T>(op.w), nullptr, op.offset}, bool(op.mean),
                          {rows<T>(op.dy)[i], carry ? carry[i] : nullptr, rows<T>(op.dx)[i], dw, db});
  }
}

template <class T>
void run(const HeadNorm& op, int) {
  const auto x = rows<T>(op.x), y = rows<T>(op.y), rstd = rows<T>(op.rstd);
  const int64_t e = op.w.elements();
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t h = 0; h < rstd.cols; ++h) {
      auto n = normalized<T>(x[i] + h * e, e, false, op.eps);
      if (op.squares) n.rstd = 1.0 / std::sqrt(rows<T>(op.squares)[i][0] / double(op.total) + op.eps);
      rstd[i][h] = n.rstd;
      scale_row<T>(n, {flat<T>(op.w), nullptr, op.offset}, y[i] + h * e);
    }
  }
}

template <class T>
void run(const HeadNormBackward& op, int) {
  const auto x = rows<T>(op.x), rstd = rows<T>(op.rstd), dy = rows<T>(op.dy), dx = rows<T>(op.dx);
  const int64_t e = op.w.elements();
  T* dw = flat<T>(op.dw);
  if (!op.accumulate) std::fill_n(dw, e, T(0));
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t at = 0; at < x.cols; at += e) {
      const Normalized<T> n{x[i] + at, e, T(0), rstd[i][at / e]};
      const T gx_mean = op.dots ? n.rstd * rows<T>(op.dots)[i][0] / double(op.total) : T(0);
      scale_row_backward<T>(n, {flat<T>(op.w), nullptr, op.offset}, false,
                            {dy[i] + at, nullptr, dx[i] + at, dw, nullptr, op.dots ? &gx_mean : nullptr});
    }
  }
}

template <class T>
void run(const RowDots& op, int) {
  const auto x = rows<T>(op.x), y = rows<T>(op.y), out = rows<T>(op.out);
  const T* w = flat<T>(op.w);
  for (int64_t i = 0; i < x.rows; ++i) {
    T sum(0);
    for (int64_t j = 0; j < x.cols; ++j) sum += (w ? w[j] : T(1)) * x[i][j] * y[i][j];
    out[i][0] = sum;
  }
}

}  // namespace weft::ref
