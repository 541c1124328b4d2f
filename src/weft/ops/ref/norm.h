// Reference kernels: normalization, forward and backward.
#pragma once
#include <cmath>

#include "weft/ops/ref/matrix.h"

namespace weft::ref {

template <class T>
struct NormArgs {
  Rows<const T> x, delta;
  Rows<T> sum;  // x + delta, where delta exists
  const T *w, *b;
  Rows<T> y;
  T *mean, *rstd;  // no mean: RMS norm
  double eps;
};
template <class T>
void norm(const NormArgs<T>& n) {
  const int64_t d = n.x.cols;
  for (int64_t i = 0; i < n.x.rows; ++i) {
    const T* s = n.x[i];
    if (n.delta) {
      for (int64_t j = 0; j < d; ++j) n.sum[i][j] = n.x[i][j] + n.delta[i][j];
      s = n.sum[i];
    }
    T mean(0), squares(0);
    if (n.mean) {
      for (int64_t j = 0; j < d; ++j) mean += s[j];
      mean /= double(d);
      n.mean[i] = mean;
    }
    for (int64_t j = 0; j < d; ++j) squares += (s[j] - mean) * (s[j] - mean);
    const T rstd = 1.0 / std::sqrt(squares / double(d) + n.eps);
    n.rstd[i] = rstd;
    for (int64_t j = 0; j < d; ++j) n.y[i][j] = (s[j] - mean) * rstd * n.w[j] + (n.b ? n.b[j] : T(0));
  }
}

template <class T>
struct NormApplyArgs {
  Rows<const T> x;
  const T *w, *b, *mean, *rstd;
  Rows<T> y;
};
template <class T>
void norm_apply(const NormApplyArgs<T>& n) {
  for (int64_t i = 0; i < n.x.rows; ++i) {
    const T mean = n.mean ? n.mean[i] : T(0);
    for (int64_t j = 0; j < n.x.cols; ++j) n.y[i][j] = (n.x[i][j] - mean) * n.rstd[i] * n.w[j] + (n.b ? n.b[j] : T(0));
  }
}

template <class T>
struct NormBackwardArgs {
  Rows<const T> x;
  const T *w, *mean, *rstd;
  Rows<const T> dy, carry;
  Rows<T> dx;
  T *dw, *db;
  bool accumulate;
};
// With xhat = (x - mean) rstd and g = w dy:  dx = rstd (g - mean(g) - xhat mean(g xhat)); RMS norm: without mean(g).
template <class T>
void norm_backward(const NormBackwardArgs<T>& n) {
  const int64_t d = n.x.cols;
  for (int64_t j = 0; j < d && !n.accumulate; ++j) {
    n.dw[j] = T(0);
    if (n.db) n.db[j] = T(0);
  }
  for (int64_t i = 0; i < n.x.rows; ++i) {
    const T mean = n.mean ? n.mean[i] : T(0), rstd = n.rstd[i];
    T g_sum(0), gx_sum(0);
    for (int64_t j = 0; j < d; ++j) {
      const T xhat = (n.x[i][j] - mean) * rstd, dy = n.dy[i][j];
      g_sum += n.w[j] * dy;
      gx_sum += n.w[j] * dy * xhat;
      n.dw[j] += dy * xhat;
      if (n.db) n.db[j] += dy;
    }
    if (!n.mean) g_sum = T(0);
    for (int64_t j = 0; j < d; ++j) {
      const T xhat = (n.x[i][j] - mean) * rstd;
      const T inner = rstd * (n.w[j] * n.dy[i][j] - g_sum / double(d) - xhat * gx_sum / double(d));
      n.dx[i][j] = (n.carry ? n.carry[i][j] : T(0)) + inner;
    }
  }
}

// One head of one token as a row of its own.
template <class T, class U>
Rows<T> head_row(Rows<U> x, int64_t i, int64_t head, int64_t width) {
  return {x[i] + head * width, 1, width, width};
}

template <class T>
struct HeadNormArgs {
  Rows<const T> x;
  const T* w;
  int64_t width;
  Rows<T> y, rstd;
  double eps;
};
template <class T>
void head_norm(const HeadNormArgs<T>& n) {
  for (int64_t i = 0; i < n.x.rows; ++i)
    for (int64_t h = 0; h < n.x.cols / n.width; ++h)
      norm<T>({head_row<const T>(n.x, i, h, n.width),
               {},
               {},
               n.w,
               nullptr,
               head_row<T>(n.y, i, h, n.width),
               nullptr,
               n.rstd[i] + h,
               n.eps});
}

template <class T>
struct HeadNormBackwardArgs {
  Rows<const T> x;
  const T* w;
  int64_t width;
  Rows<const T> rstd, dy;
  Rows<T> dx;
  T* dw;
  bool accumulate;
};
template <class T>
void head_norm_backward(const HeadNormBackwardArgs<T>& n) {
  bool accumulate = n.accumulate;
  for (int64_t i = 0; i < n.x.rows; ++i)
    for (int64_t h = 0; h < n.x.cols / n.width; ++h, accumulate = true)
      norm_backward<T>({head_row<const T>(n.x, i, h, n.width),
                        n.w,
                        nullptr,
                        n.rstd[i] + h,
                        head_row<const T>(n.dy, i, h, n.width),
                        {},
                        head_row<T>(n.dx, i, h, n.width),
                        n.dw,
                        nullptr,
                        accumulate});
}

}  // namespace weft::ref
