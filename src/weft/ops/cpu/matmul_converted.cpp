#include "weft/ops/cpu/matmul_converted.h"

#include "weft/ops/cpu/pointwise.h"
#include "weft/ops/cpu/team.h"

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 13;  // elements that are worth a thread

void convert(const Tensor& from, const Tensor& to, int threads) {
  cpu::for_ranges(threads, from.elements(), kGrain,
                  [&](cpu::Range elements) { cpu::copy({.from = from, .to = to}, elements); });
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
    if (op.out.dtype != DType::f32) f32.out = place(op.out, workspace);
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

int64_t ConvertedMatmul::most_workspace_bytes(const Matmul& op) const {
  return Layout(op, nullptr).bytes + f32_.most_workspace_bytes();
}

void ConvertedMatmul::run(const Matmul& op, std::byte* workspace) const {
  const Layout layout(op, workspace);
  const Matmul& f32 = layout.f32;
  convert(op.a, f32.a, threads_);
  convert(op.b, f32.b, threads_);
  if (op.bias) convert(op.bias, f32.bias, threads_);
  const bool narrow = op.out.dtype != DType::f32;
  if (narrow && op.accumulate) convert(op.out, f32.out, threads_);
  f32_.run(f32, workspace + layout.bytes);
  if (narrow) convert(f32.out, op.out, threads_);
}

}  // namespace weft
