#include "weft/ops/cpu/matmul_few_rows.h"

#include "weft/ops/cpu/pointwise.h"
#include "weft/ops/cpu/team.h"

namespace weft {
namespace {

constexpr int64_t kFewRowsGrain = 24;  // columns: whole groups of any kernel

// The operand a in f32: itself, or widened into the workspace.
Tensor widened(const Tensor& a, std::byte* workspace) {
  if (a.dtype == DType::f32) return a;
  const Tensor f32(workspace, DType::f32, Shape(a.rows(), a.cols()));
  cpu::copy({.from = a, .to = f32}, {0, a.elements()});
  return f32;
}

template <class T>
void run_columns(const Matmul& op, const Tensor& a, cpu::Range cols, void (*kernel)(const FewRows<T>&)) {
  kernel({.a = a.as<float>(),
          .b = op.b.as<T>() + cols.begin * op.b.row_stride,
          .c = static_cast<std::byte*>(op.out.data) + cols.begin * size_of(op.out.dtype),
          .bias = op.bias ? op.bias.as<T>() + cols.begin : nullptr,
          .a_stride = a.row_stride,
          .b_stride = op.b.row_stride,
          .c_stride = op.out.row_stride,
          .rows = op.m(),
          .cols = cols.size(),
          .k = op.k(),
          .c_type = op.out.dtype,
          .add_to_c = op.accumulate});
}

}  // namespace

FewRowsMatmul::FewRowsMatmul(int threads, Numerics numerics)
    : threads_(threads), numerics_(numerics), kernels_(few_rows_kernels()) {}

bool FewRowsMatmul::takes(const Matmul& op) const {
  return numerics_ == Numerics::fast && op.m() <= kMostRows && !op.trans_a && op.trans_b;
}

int64_t FewRowsMatmul::workspace_bytes(const Matmul& op) const {
  return op.a.dtype == DType::f32 ? 0 : op.a.elements() * size_of(DType::f32);
}

void FewRowsMatmul::run(const Matmul& op, std::byte* workspace) const {
  const Tensor a = widened(op.a, workspace);
  cpu::for_ranges(threads_, op.n(), kFewRowsGrain, [&](cpu::Range cols) {
    if (op.b.dtype == DType::f32)
      run_columns(op, a, cols, kernels_.f32);
    else if (op.b.dtype == DType::bf16)
      run_columns(op, a, cols, kernels_.bf16);
    else
      run_columns(op, a, cols, kernels_.f16);
  });
}

}  // namespace weft
