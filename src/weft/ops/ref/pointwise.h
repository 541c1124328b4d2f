// Reference kernels: activations, cross-entropy, dropout, optimizers.
#pragma once
#include <cmath>
#include <numbers>

#include "weft/base/rng.h"
#include "weft/ops/ops.h"
#include "weft/ops/ref/attention.h"
#include "weft/ops/ref/matrix.h"

namespace weft::ref {

template <class T>
T sigmoid(T x) {
  return 1.0 / (1.0 + std::exp(-x));
}
template <class T>
T swiglu(T gate, T up) {
  return gate * sigmoid(gate) * up;
}
template <class T>
struct GateUp {
  T gate, up;
};
template <class T>
GateUp<T> swiglu_backward(T gate, T up, T da) {
  const T s = sigmoid(gate);
  return {da * up * s * (1.0 + gate * (1.0 - s)), da * gate * s};
}

// erf of a complex number near the real axis, to first order: enough for a complex step.
inline double erf_of(double x) { return std::erf(x); }
inline std::complex<double> erf_of(std::complex<double> x) {
  const double slope = 2 / std::sqrt(std::numbers::pi) * std::exp(-x.real() * x.real());
  return {std::erf(x.real()), slope * x.imag()};
}
template <class T>
T gelu(T x, bool exact) {
  if (exact) return 0.5 * x * (1.0 + erf_of(x / std::numbers::sqrt2));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
template <class T>
T gelu_slope(T x, bool exact) {
  if (exact)
    return 0.5 * (1.0 + erf_of(x / std::numbers::sqrt2)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  const double c = std::sqrt(2 / std::numbers::pi);
  const T t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3 * 0.044715 * x * x);
}

inline double kept(const DropoutSpec& d, uint64_t index) {
  if (d.p == 0) return 1;
  return double(random_bits(d.key, index)) < d.p * 0x1p32 ? 0 : 1 / (1 - d.p);
}

template <class T>
T log_sum_exp(const T* x, int64_t n) {
  double most = -INFINITY;
  for (int64_t j = 0; j < n; ++j) most = std::max(most, real_part(x[j]));
  T sum(0);
  for (int64_t j = 0; j < n; ++j) sum += std::exp(x[j] - most);
  return most + std::log(sum);
}
// One token: its loss; dlogits (may be logits) where it exists.
template <class T>
T cross_entropy(const T* logits, int64_t classes, int64_t target, T* dlogits, double scale) {
  const T lse = log_sum_exp(logits, classes);
  const T loss = lse - logits[target];
  for (int64_t j = 0; j < classes && dlogits; ++j)
    dlogits[j] = scale * (std::exp(logits[j] - lse) - (j == target ? 1.0 : 0.0));
  return loss;
}

}  // namespace weft::ref
