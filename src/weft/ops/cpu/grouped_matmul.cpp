#include "weft/ops/cpu/grouped_matmul.h"

#include <cstring>

namespace weft {
namespace {

struct GroupRun {
  int64_t first, count;
};
GroupRun rows_of(const Tensor& offsets, int64_t group) {
  const int32_t* at = offsets.as<int32_t>();
  return {at[group], at[group + 1] - at[group]};
}

// The product of the rows `run` of one group.
Matmul product_of(const GroupedMatmul& op, int64_t group, GroupRun run) {
  return {.a = op.x.slice_rows(run.first, run.count),
          .b = op.w.slice_rows(group * op.rows_of_group(), op.rows_of_group()),
          .out = op.out.slice_rows(run.first, run.count),
          .trans_b = !op.turned};
}
Matmul product_of(const GroupedWeightGrad& op, int64_t group, GroupRun run) {
  return {.a = op.dy.slice_rows(run.first, run.count),
          .b = op.x.slice_rows(run.first, run.count),
          .out = op.dw.slice_rows(group * op.rows_of_group(), op.rows_of_group()),
          .trans_a = true,
          .accumulate = op.accumulate};
}

void zero_rows(const Tensor& x) {
  const int64_t size = size_of(x.dtype);
  for (int64_t i = 0; i < x.rows(); ++i)
    std::memset(static_cast<std::byte*>(x.data) + i * x.row_stride * size, 0, size_t(x.cols() * size));
}

}  // namespace

int64_t CpuGroupedMatmul::most_bytes(const Matmul& largest) const {
  if (largest.m() == 0 || largest.n() == 0 || largest.k() == 0) return 0;
  return largest.a.dtype == DType::f32 ? f32_.most_workspace_bytes() : converted_.most_workspace_bytes(largest);
}
int64_t CpuGroupedMatmul::workspace_bytes(const GroupedMatmul& op) const {
  return most_bytes(product_of(op, 0, {0, op.x.rows()}));
}
int64_t CpuGroupedMatmul::workspace_bytes(const GroupedWeightGrad& op) const {
  return most_bytes(product_of(op, 0, {0, op.x.rows()}));
}

void CpuGroupedMatmul::run(const GroupedMatmul& op, std::byte* workspace) const {
  for (int64_t g = 0; g < op.groups(); ++g) run(product_of(op, g, rows_of(op.offsets, g)), workspace);
  const int64_t end = op.offsets.as<int32_t>()[op.groups()];
  zero_rows(op.out.slice_rows(end, op.out.rows() - end));
}

void CpuGroupedMatmul::run(const GroupedWeightGrad& op, std::byte* workspace) const {
  for (int64_t g = 0; g < op.groups(); ++g) run(product_of(op, g, rows_of(op.offsets, g)), workspace);
}

void CpuGroupedMatmul::run(const Matmul& op, std::byte* workspace) const {
  if (op.m() == 0 || op.n() == 0) return;
  if (op.k() == 0) return op.accumulate ? void() : zero_rows(op.out);
  op.a.dtype == DType::f32 ? f32_.run(op, workspace) : converted_.run(op, workspace);
}

}  // namespace weft
