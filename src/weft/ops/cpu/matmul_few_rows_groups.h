// What kernels of a few rows have in common: the groups of rows that meet, and the end of a sum.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "weft/ops/cpu/matmul_few_rows_kernels.h"

namespace weft::few_rows {

constexpr int kMostColumns = 8;               // streams that are read side by side
constexpr int64_t kLine = 64, kAhead = 4096;  // bytes

// Rows are short: the hardware's prefetcher finds each of them anew. So every line asks for one so many values further
// on, if the rows behind those at j are there.
template <class F>
int64_t ahead_of(const F& f, int columns) {
  return std::max(columns * f.b_stride, kAhead / int64_t(sizeof(*f.b)));
}
template <class F>
bool asks_ahead(const F& f, int64_t i, int64_t j, int columns) {
  return i == 0 && (f.cols - j) * f.b_stride > ahead_of(f, columns) + columns * f.b_stride;
}

template <class T, class A>
void finish(const FewRows<T, A>& f, int64_t i, int64_t j, float sum) {
  const auto end = [&](auto* c) {
    const float start = f.add_to_c ? float(*c) : f.bias ? float(f.bias[j]) : 0.0f;
    *c = std::remove_reference_t<decltype(*c)>(start + sum);
  };
  const int64_t at = i * f.c_stride + j;
  f.c_type == DType::f32 ? end(static_cast<float*>(f.c) + at) : end(static_cast<T*>(f.c) + at);
}

// All rows of a, kRows at a time, then half as many and so on: from the second time on, b's are in the cache.
// Dots::of<kRows, kCols>(f, i, j): c for kRows rows of a from i on and kCols rows of b from j on.
template <class Dots, int kRows, int kCols, class F>
void dots_of_rows(const F& f, int64_t i, int64_t j) {
  for (; i + kRows <= f.rows; i += kRows) Dots::template of<kRows, kCols>(f, i, j);
  if constexpr (kRows > 1) {
    if (i < f.rows) dots_of_rows<Dots, kRows / 2, kCols>(f, i, j);
  }
}

// Groups of kRows x kCols sums, kMostSums at most. What is left of b's rows behind the last whole group is taken one by
// one.
template <class Dots, int kMostSums, int kRows, class F>
void groups_of_rows(const F& f) {
  if constexpr (kRows > 1) {
    if (f.rows < kRows) return groups_of_rows<Dots, kMostSums, kRows / 2>(f);
  }
  constexpr int kCols = std::min(kMostColumns, kMostSums / kRows);
  int64_t j = 0;
  for (; j + kCols <= f.cols; j += kCols) dots_of_rows<Dots, kRows, kCols>(f, 0, j);
  for (; j < f.cols; ++j) dots_of_rows<Dots, kRows, 1>(f, 0, j);
}

}  // namespace weft::few_rows
