// Tensors as kernels read them.
#pragma once
#include <algorithm>

#include "weft/ops/ops.h"

namespace weft::cpu {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Rows of `cols` elements, `stride` apart. A null `at` is an operand that does not exist.
template <class T>
struct Rows {
  T* at = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  T* operator[](int64_t i) const { return at + i * stride; }
  explicit operator bool() const { return at != nullptr; }
};
template <class T>
Rows<T> rows_of(const Tensor& t) {
  if (!t) return {};
  return {t.as<std::remove_const_t<T>>(), t.rows(), t.cols(), t.row_stride};
}
template <class T>
T* flat(const Tensor& t) {
  return t ? t.as<T>() : nullptr;
}

// f.operator()<T>() for the type that a kernel computes in: that of t, f32 where t does not exist.
template <class F>
auto with_type_of(const Tensor& t, const F& f) {
  if (t && t.dtype == DType::bf16) return f.template operator()<bf16>();
  if (t && t.dtype == DType::f16) return f.template operator()<f16>();
  WEFT_CHECK(!t || t.dtype == DType::f32, "the CPU backend computes in f32, bf16 and f16, not {}", name_of(t.dtype));
  return f.template operator()<float>();
}

// The elements of matrices of one size as one run where no row of any of them has a gap behind it, else row by row:
// calls f(row, column, n) for the runs of the elements `range`, counted by rows.
template <class F>
void for_runs(Range range, int64_t cols, const F& f) {
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t column = at % cols, n = std::min(cols - column, range.end - at);
    f(at / cols, column, n);
    at += n;
  }
}
template <class... Tensors>
int64_t run_cols(const Tensor& first, const Tensors&... others) {
  const bool whole = first.contiguous() && (... && (!others || others.contiguous()));
  return std::max<int64_t>(1, whole ? first.elements() : first.cols());
}

}  // namespace weft::cpu
