#include "weft/ops/cpu/matmul_converted.h"

namespace weft {
namespace {

void widen(const Tensor& from, const Tensor& to, int threads) {
  const bf16* x = from.as<bf16>();
  float* y = to.as<float>();
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < from.rows(); ++i)
    for (int64_t j = 0; j < from.cols(); ++j) y[i * to.row_stride + j] = float(x[i * from.row_stride + j]);
}

void round_to(const Tensor& from, const Tensor& to, int threads) {
  const float* x = from.as<float>();
  bf16* y = to.as<bf16>();
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < from.rows(); ++i)
    for (int64_t j = 0; j < from.cols(); ++j) y[i * to.row_stride + j] = bf16(x[i * from.row_stride + j]);
}

}  // namespace

// Where the f32 images of the operands lie in the workspace, and the product of these.
struct ConvertedMatmul::Layout {
  Matmul f32;
  int64_t bytes = 0;

  Layout(const Matmul& op, std::byte* workspace) : f32(op) {
    f32.a = place(op.a, workspace);
    f32.b = place(op.b, workspace);
    if (op.bias) f32.bias = place(op.bias, workspace);
    if (op.out.dtype == DType::bf16) f32.out = place(op.out, workspace);
  }
  Tensor place(const Tensor& like, std::byte* workspace) {
    Tensor t(workspace == nullptr ? nullptr : workspace + bytes, DType::f32, Shape(like.rows(), like.cols()));
    bytes += (t.bytes() + 63) / 64 * 64;
    return t;
  }
};

int64_t ConvertedMatmul::workspace_bytes(const Matmul& op) const {
  const Layout layout(op, nullptr);
  return layout.bytes + f32_.workspace_bytes(layout.f32);
}

void ConvertedMatmul::run(const Matmul& op, std::byte* workspace) const {
  const Layout layout(op, workspace);
  const Matmul& f32 = layout.f32;
  widen(op.a, f32.a, threads_);
  widen(op.b, f32.b, threads_);
  if (op.bias) widen(op.bias, f32.bias, threads_);
  const bool narrow = op.out.dtype == DType::bf16;
  if (narrow && op.accumulate) widen(op.out, f32.out, threads_);
  f32_.run(f32, workspace + layout.bytes);
  if (narrow) round_to(f32.out, op.out, threads_);
}

}  // namespace weft
