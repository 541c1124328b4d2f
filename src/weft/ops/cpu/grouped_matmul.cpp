#include "weft/ops/cpu/grouped_matmul.h"

#include <cstring>

#include "weft/ops/grouped_products.h"

namespace weft {
namespace {

template <class Op>
Matmul product_of_group(const Op& op, int64_t group) {
  const int32_t* at = op.offsets.template as<int32_t>() + group;
  return product_of(op, group, at[0], at[1] - at[0]);
}

void zero_rows(const Tensor& x) {
  const int64_t size = size_of(x.dtype);
  for (int64_t i = 0; i < x.rows(); ++i)
    std::memset(static_cast<std::byte*>(x.data) + i * x.row_stride * size, 0, size_t(x.cols() * size));
}

}  // namespace

int64_t CpuGroupedMatmul::most_bytes(const Matmul& largest) const {
  if (largest.m() == 0 || largest.n() == 0 || largest.k() == 0) return 0;
  if (runs_on_amx(largest)) return amx_->most_workspace_bytes(largest);
  return largest.a.dtype == DType::f32 ? f32_.most_workspace_bytes() : converted_.most_workspace_bytes(largest);
}
int64_t CpuGroupedMatmul::workspace_bytes(const GroupedMatmul& op) const {
  return most_bytes(product_of(op, 0, 0, op.x.rows()));
}
int64_t CpuGroupedMatmul::workspace_bytes(const GroupedWeightGrad& op) const {
  return most_bytes(product_of(op, 0, 0, op.x.rows()));
}

void CpuGroupedMatmul::run(const GroupedMatmul& op, std::byte* workspace) const {
  for (int64_t g = 0; g < op.groups(); ++g) run(product_of_group(op, g), workspace);
  const int64_t end = op.offsets.as<int32_t>()[op.groups()];
  zero_rows(op.out.slice_rows(end, op.out.rows() - end));
}

void CpuGroupedMatmul::run(const GroupedWeightGrad& op, std::byte* workspace) const {
  for (int64_t g = 0; g < op.groups(); ++g) run(product_of_group(op, g), workspace);
}

void CpuGroupedMatmul::run(const Matmul& op, std::byte* workspace) const {
  if (op.m() == 0 || op.n() == 0) return;
  if (op.k() == 0) return op.accumulate ? void() : zero_rows(op.out);
  if (runs_on_amx(op)) return amx_->run(op, workspace);
  op.a.dtype == DType::f32 ? f32_.run(op, workspace) : converted_.run(op, workspace);
}

}  // namespace weft
