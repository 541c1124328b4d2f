#include "weft/ops/checked.h"

#include <cmath>

namespace weft {
namespace {

template <class T>
double value_of(T x) {
  if constexpr (std::is_same_v<T, bf16>)
    return double(float(x));
  else
    return double(x);
}

template <class T>
std::string find(const Tensor& t) {
  for (int64_t i = 0; i < t.rows(); ++i) {
    const T* row = t.as<T>() + i * t.row_stride;
    for (int64_t j = 0; j < t.cols(); ++j)
      if (!std::isfinite(value_of(row[j]))) return fmt::format("[{}, {}] is {}", i, j, value_of(row[j]));
  }
  return "";
}

}  // namespace

std::string find_nonfinite(const Tensor& t) {
  if (t.data == nullptr) return "";
  switch (t.dtype) {
    case DType::f64:
      return find<double>(t);
    case DType::f32:
      return find<float>(t);
    case DType::bf16:
      return find<bf16>(t);
    default:
      return "";
  }
}

}  // namespace weft
