#include "weft/ops/checked.h"

#include <cmath>

namespace weft {
namespace {

template <class T>
std::string find(const Tensor& t) {
  for (int64_t i = 0; i < t.rows(); ++i) {
    const T* row = t.as<T>() + i * t.row_stride;
    for (int64_t j = 0; j < t.cols(); ++j)
      if (const auto x = static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(row[j]);
          !std::isfinite(x))
        return fmt::format("[{}, {}] is {}", i, j, x);
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
    case DType::f16:
      return find<f16>(t);
    default:
      return "";
  }
}

}  // namespace weft
