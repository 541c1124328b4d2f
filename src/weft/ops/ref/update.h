// Reference kernels: reductions and optimizers.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/ops/ref/view.h"

namespace weft::ref {

template <class T, class F>
void reduce(const Tensor& x, const Tensor& out, F f) {
  T sum(0);
  for (int64_t i = 0; i < x.elements(); ++i) sum += f(flat<T>(x)[i]);
  *flat<T>(out) = sum;
}

template <class T>
void run(const Sum& op, int) {
  reduce<T>(op.x, op.out, [](T x) { return x; });
}
template <class T>
void run(const SumSquares& op, int) {
  const int64_t n = op.x.elements();
  std::vector<T> sums(size_t((n + kSumLeaf - 1) / kSumLeaf));
  for (int64_t i = 0; i < n; ++i) sums[size_t(i / kSumLeaf)] += flat<T>(op.x)[i] * flat<T>(op.x)[i];
  for (; sums.size() > 1; sums.resize((sums.size() + 1) / 2))
    for (size_t i = 0; i < sums.size(); i += 2) sums[i / 2] = i + 1 < sums.size() ? sums[i] + sums[i + 1] : sums[i];
  *flat<T>(op.out) = sums.empty() ? T(0) : sums[0];
}
template <class T>
void run(const CountNonfinite& op, int) {
  reduce<T>(op.x, op.out, [](T x) { return std::isfinite(real_part(x)) ? T(0) : T(1); });
}

template <class T>
void run(const AdamW& op, int) {
  const double c1 = 1 - std::pow(op.beta1, double(op.step)), c2 = 1 - std::pow(op.beta2, double(op.step));
  for (int64_t i = 0; i < op.w.elements(); ++i) {
    T &w = flat<T>(op.w)[i], &m = flat<T>(op.m)[i], &v = flat<T>(op.v)[i];
    const T g = op.grad_scale * flat<T>(op.grad)[i];
    m = op.beta1 * m + (1 - op.beta1) * g;
    v = op.beta2 * v + (1 - op.beta2) * g * g;
    w -= op.lr * op.weight_decay * w;
    w -= op.lr * (m / c1) / (std::sqrt(v / c2) + op.eps);
    if (op.value) flat<T>(op.value)[i] = w;
  }
}

// The new moments of element i, which is of block b here.
template <class T>
struct Moments {
  T m, v;
};
template <class T, class Op>
Moments<T> next_moments(const Op& op, int64_t b, int64_t i) {
  const T m = double(kLevelsWithSign[op.m.template as<uint8_t>()[i]]) * flat<T>(op.m_absmax)[b];
  const T v = double(kLevelsWithoutSign[op.v.template as<uint8_t>()[i]]) * flat<T>(op.v_absmax)[b];
  const T g = op.grad_scale * flat<T>(op.grad)[i];
  return {op.beta1 * m + (1 - op.beta1) * g, op.beta2 * v + (1 - op.beta2) * g * g};
}
// The code of the level nearest to x, the lower one of two: as many as there are midpoints below x.
inline uint8_t nearest_code(Levels which, double x) {
  const LevelTable& levels = levels_of(which);
  int code = 0;
  while (code + 1 < kCodes && (double(levels[size_t(code)]) + double(levels[size_t(code) + 1])) / 2 < x) ++code;
  return uint8_t(code);
}
inline double relative_to(double x, double most) { return most > 0 ? x / most : x; }

template <class T>
void run(const AdamW8Max& op, int) {
  for (int64_t b = 0; b < op.m_max.elements(); ++b) {
    double m = 0, v = 0;
    op.at.for_runs_of(b, op.grad.elements(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Moments<T> next = next_moments<T>(op, b, i);
        m = std::max(m, std::abs(real_part(next.m))), v = std::max(v, std::abs(real_part(next.v)));
      }
    });
    flat<T>(op.m_max)[b] = m, flat<T>(op.v_max)[b] = v;
  }
}

template <class T>
void run(const AdamW8& op, int) {
  const double c1 = 1 - std::pow(op.beta1, double(op.step)), c2 = 1 - std::pow(op.beta2, double(op.step));
  for (int64_t b = 0; b < op.m_max.elements(); ++b) {
    const T most_m = flat<T>(op.m_max)[b], most_v = flat<T>(op.v_max)[b];
    op.at.for_runs_of(b, op.w.elements(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Moments<T> next = next_moments<T>(op, b, i);
        T& w = flat<T>(op.w)[i];
        w -= op.lr * op.weight_decay * w;
        w -= op.lr * (next.m / c1) / (std::sqrt(next.v / c2) + op.eps);
        if (op.value) flat<T>(op.value)[i] = w;
        op.m.as<uint8_t>()[i] = nearest_code(Levels::with_sign, relative_to(real_part(next.m), real_part(most_m)));
        op.v.as<uint8_t>()[i] = nearest_code(Levels::without_sign, relative_to(real_part(next.v), real_part(most_v)));
      }
    });
    flat<T>(op.m_absmax)[b] = most_m, flat<T>(op.v_absmax)[b] = most_v;
  }
}

template <class T>
void run(const MaxRows& op, int) {
  const auto x = rows<T>(op.x);
  for (int64_t i = 0; i < op.out.elements(); ++i) {
    T most = x[0][i];
    for (int64_t r = 1; r < x.rows; ++r)
      if (real_part(x[r][i]) > real_part(most)) most = x[r][i];
    flat<T>(op.out)[i] = most;
  }
}

template <class T>
void run(const Dequantise& op, int) {
  const auto u8 = [](const Tensor& t) { return t ? t.as<uint8_t>() : nullptr; };
  each<T>(op.out, CodedNumbers<T>{u8(op.codes), u8(op.maxima), flat<T>(op.scales), op.at});
}

template <class T>
void run(const Sgd& op, int) {
  for (int64_t i = 0; i < op.w.elements(); ++i) {
    T &w = flat<T>(op.w)[i], &buf = flat<T>(op.buf)[i];
    const T g = op.grad_scale * flat<T>(op.grad)[i] + op.weight_decay * w;
    buf = op.step == 1 ? g : op.momentum * buf + g;
    w -= op.lr * buf;
    if (op.value) flat<T>(op.value)[i] = w;
  }
}

}  // namespace weft::ref
