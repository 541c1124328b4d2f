#include "weft/ops/checked.h"

#include <cmath>

#include "weft/device/host_parts.h"

namespace weft {
namespace {

template <class T>
std::string find(const Tensor& t, int64_t first_row) {
  for (int64_t i = 0; i < t.rows(); ++i) {
    const T* row = t.as<T>() + i * t.row_stride;
    for (int64_t j = 0; j < t.cols(); ++j)
      if (const auto x = static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(row[j]);
          !std::isfinite(x))
        return fmt::format("[{}, {}] is {}", first_row + i, j, x);
  }
  return "";
}

std::string find_in(const Tensor& t, int64_t first_row) {
  switch (t.dtype) {
    case DType::f64:
      return find<double>(t, first_row);
    case DType::f32:
      return find<float>(t, first_row);
    case DType::bf16:
      return find<bf16>(t, first_row);
    case DType::f16:
      return find<f16>(t, first_row);
    default:
      return "";
  }
}

}  // namespace

std::string find_nonfinite(const Memory& memory, const Tensor& t) {
  std::string found;
  if (t.data == nullptr) return found;
  read_parts(memory, t, [&](const Tensor& part, int64_t first_row) {
    if (found.empty()) found = find_in(part, first_row);
  });
  return found;
}

void Checked::run(const AnyOp& op) {
  try {
    op.check();
  } catch (const PlacementError& e) { throw PlacementError(path_.prefix() + e.what()); }
  inner_.run(op);
  if (options_.finite) wait_check_finite(op);
}

void Checked::wait_check_finite(const AnyOp& op) {
  inner_.wait_all();
  for (const Field& f : op.fields()) {
    if (f.role == Role::in || !*f.tensor) continue;
    const std::string bad = find_nonfinite(options_.memory, *f.tensor);
    if (!bad.empty()) throw NumericsError(fmt::format("{}{}.{} {}", path_.prefix(), op.name(), f.name, bad));
  }
}

}  // namespace weft
