// The numbers of a host tensor, one after the other: for looking at runs, not for running them.
#pragma once
#include "weft/tensor/tensor.h"

namespace weft {

inline bool holds_numbers(const Tensor& t) {
  return t.data != nullptr && (t.dtype == DType::f64 || t.dtype == DType::f32 || t.dtype == DType::bf16);
}

// Calls f(row, column, value) for every element of a tensor of floating-point numbers.
template <class F>
void for_each_value(const Tensor& t, const F& f) {
  const auto walk = [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < t.rows(); ++i) {
      const T* row = t.as<T>() + i * t.row_stride;
      for (int64_t j = 0; j < t.cols(); ++j) {
        if constexpr (std::is_same_v<T, bf16>)
          f(i, j, double(float(row[j])));
        else
          f(i, j, double(row[j]));
      }
    }
  };
  WEFT_CHECK(holds_numbers(t), "a {} tensor is looked at", name_of(t.dtype));
  if (t.dtype == DType::f64)
    walk(0.0);
  else if (t.dtype == DType::f32)
    walk(0.0f);
  else
    walk(bf16{});
}

}  // namespace weft
