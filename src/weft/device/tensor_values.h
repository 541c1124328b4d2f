// The numbers of a tensor, one after the other: for looking at runs, not for running them.
#pragma once
#include "weft/device/host_parts.h"

namespace weft {

inline bool holds_numbers(const Tensor& t) {
  return t.data != nullptr && t.dtype != DType::i32 && t.dtype != DType::i64 && t.dtype != DType::u8;
}

// Calls f(row, column, value) for every element of a tensor of floating-point numbers, which lies in `memory`. Blocks.
template <class F>
void for_each_value(const Memory& memory, const Tensor& t, const F& f) {
  const auto walk = [&](const Tensor& part, int64_t first_row, auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < part.rows(); ++i) {
      const T* row = part.as<T>() + i * part.row_stride;
      for (int64_t j = 0; j < part.cols(); ++j) {
        if constexpr (sizeof(T) == 2)
          f(first_row + i, j, double(float(row[j])));
        else
          f(first_row + i, j, double(row[j]));
      }
    }
  };
  WEFT_CHECK(holds_numbers(t), "a {} tensor is looked at", name_of(t.dtype));
  read_parts(memory, t, [&](const Tensor& part, int64_t first_row) {
    if (t.dtype == DType::f64)
      walk(part, first_row, 0.0);
    else if (t.dtype == DType::f32)
      walk(part, first_row, 0.0f);
    else if (t.dtype == DType::bf16)
      walk(part, first_row, bf16{});
    else
      walk(part, first_row, f16{});
  });
}

// Copies each row to where row_of(row) says: room for t.cols() values.
template <class F>
void copy_rows(const Memory& memory, const Tensor& t, const F& row_of) {
  double* to = nullptr;
  for_each_value(memory, t, [&](int64_t row, int64_t column, double x) {
    if (column == 0) to = row_of(row);
    to[column] = x;
  });
}

}  // namespace weft
