#include "weft/ops/checked.h"

#include <cmath>

namespace weft {
namespace {

template <class T>
std::string find(const Tensor& t) {
  const T* x = t.as<T>();
  for (int64_t i = 0; i < t.rows(); ++i) {
    for (int64_t j = 0; j < t.cols(); ++j) {
      const double v = [&] {
        if constexpr (std::is_same_v<T, bf16>)
          return double(float(x[i * t.row_stride + j]));
        else
          return double(x[i * t.row_stride + j]);
      }();
      if (!std::isfinite(v)) return fmt::format("[{}, {}] is {}", i, j, v);
    }
  }
  return "";
}

}  // namespace

std::string find_nonfinite(const Tensor& t) {
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

void Checked::fail(std::string_view op, std::string_view field, const std::string& bad) const {
  std::string where;
  for (const std::string& r : regions_) where += r + ": ";
  throw NumericsError(fmt::format("{}{}.{} {}", where, op, field, bad));
}

}  // namespace weft
