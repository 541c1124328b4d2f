// Reference kernels: reductions and optimizers.
#pragma once
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
