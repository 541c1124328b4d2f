// How reference kernels see tensors, and how they spread rows over threads.
//   T  double; or std::complex<double> where a test differentiates a kernel by complex step
#pragma once
#include <complex>
#include <cstdint>

#include "weft/base/parallel.h"
#include "weft/ops/ops.h"

namespace weft::ref {

// Rows of `cols` numbers, `stride` apart.
template <class T>
struct Rows {
  T* at = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  T* operator[](int64_t i) const { return at + i * stride; }
  explicit operator bool() const { return at != nullptr; }  // an operand that exists
};

// The elements of an f64 tensor. A test that differentiates puts complex numbers behind its tensors, which say f64 too.
template <class T>
T* flat(const Tensor& t) {
  if (!t) return nullptr;
  WEFT_CHECK(t.dtype == DType::f64, "the reference backend computes in f64, not {}", t.to_string());
  return static_cast<T*>(t.data);
}
template <class T>
Rows<T> rows(const Tensor& t) {
  return {flat<T>(t), t.rows(), t.cols(), t.row_stride};
}

// y[i][j] = f(i, j) for every element.
template <class T, class F>
void each(const Tensor& y, F f) {
  const auto to = rows<T>(y);
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t j = 0; j < to.cols; ++j) to[i][j] = f(i, j);
}

// f(i) for i in [0, n), on up to `threads` threads; one thread stays in the caller's.
template <class F>
void spread(int64_t n, int threads, F f) {
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  };
  if (threads == 1)
    some(0, n);
  else
    parallel_for(n, threads, 1, some);
}

inline double real_part(double x) { return x; }
inline double real_part(std::complex<double> x) { return x.real(); }

}  // namespace weft::ref
