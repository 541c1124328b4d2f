#include "weft/ops/cpu/matmul_few_rows.h"

#include "weft/ops/cpu/matmul_amx_kernels.h"
#include "weft/ops/cpu/pointwise.h"
#include "weft/ops/cpu/team.h"

namespace weft {
namespace {

constexpr int64_t kFewRowsGrain = 24;  // columns: whole groups of any kernel
constexpr int64_t kTileCols = 16;      // of a tile of sums

int64_t rounded_to_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The operand a in f32: itself, or widened into the workspace.
Tensor widened(const Tensor& a, std::byte* workspace) {
  if (a.dtype == DType::f32) return a;
  const Tensor f32(workspace, DType::f32, Shape(a.rows(), a.cols()));
  cpu::copy({.from = a, .to = f32}, {0, a.elements()});
  return f32;
}

template <class T, class A>
void run_columns(const Matmul& op, const Tensor& a, cpu::Range cols, void (*kernel)(const FewRows<T, A>&)) {
  kernel({.a = a.as<A>(),
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

// a: the operand, widened unless pairs of bf16 are multiplied.
void run_columns(const Matmul& op, const Tensor& a, cpu::Range cols, const FewRowsKernels& kernels) {
  if (op.b.dtype == DType::f32)
    run_columns(op, a, cols, kernels.f32);
  else if (a.dtype == DType::bf16)
    run_columns(op, a, cols, few_rows_in_pairs);
  else if (op.b.dtype == DType::bf16)
    run_columns(op, a, cols, kernels.bf16);
  else
    run_columns(op, a, cols, kernels.f16);
}

// cols: whole tiles of them.
void run_tiles(const Matmul& op, const std::byte* packed, cpu::Range cols) {
  const bool narrow = op.out.dtype != DType::f32;
  const int64_t value_bytes = narrow ? 2 : 4;
  amx_begin();
  amx_multiply_few({.a = packed,
                    .b = static_cast<const uint16_t*>(op.b.data) + cols.begin * op.b.row_stride,
                    .b_stride = op.b.row_stride,
                    .cols = cols.size(),
                    .steps = op.k() / kAmxStep,
                    .result = {.out = static_cast<std::byte*>(op.out.data) + cols.begin * value_bytes,
                               .row_bytes = op.out.row_stride * value_bytes,
                               .rows = int(op.m()),
                               .narrow = narrow,
                               .add_to_out = op.accumulate,
                               .bias = op.bias ? static_cast<const uint16_t*>(op.bias.data) + cols.begin : nullptr}});
  amx_end();
}

}  // namespace

FewRowsMatmul::FewRowsMatmul(int threads, Numerics numerics, CpuIsa isa)
    : threads_(threads), numerics_(numerics), isa_(isa), kernels_(few_rows_kernels()) {}

bool FewRowsMatmul::takes(const Matmul& op) const {
  return numerics_ == Numerics::fast && op.m() <= kMostRows && !op.trans_a && op.trans_b;
}

// Whatever the number of rows: their bits must not follow from it.
bool FewRowsMatmul::runs_on_amx(const Matmul& op) const {
  return isa_ == CpuIsa::amx && op.b.dtype == DType::bf16 && op.k() % kAmxStep == 0 && op.n() >= kTileCols;
}

bool FewRowsMatmul::multiplies_pairs(const Matmul& op) const {
  return isa_ >= CpuIsa::avx512_bf16 && op.b.dtype == DType::bf16;
}

int64_t FewRowsMatmul::workspace_bytes(const Matmul& op) const {
  if (op.a.dtype == DType::f32) return 0;
  const int64_t packed = runs_on_amx(op) ? op.k() / kAmxStep * kAmxItemBytes : 0;
  return multiplies_pairs(op) ? packed : rounded_to_lines(op.a.elements() * size_of(DType::f32));
}

void FewRowsMatmul::run(const Matmul& op, std::byte* workspace) const {
  if (runs_on_amx(op)) return run_on_amx(op, workspace);
  const Tensor a = multiplies_pairs(op) ? op.a : widened(op.a, workspace);
  cpu::for_ranges(threads_, op.n(), kFewRowsGrain, [&](cpu::Range cols) { run_columns(op, a, cols, kernels_); });
}

void FewRowsMatmul::run_on_amx(const Matmul& op, std::byte* workspace) const {
  amx_pack_all({.from = static_cast<const uint16_t*>(op.a.data),
                .stride = op.a.row_stride,
                .k_stride = 1,
                .lanes = int(op.m()),
                .k = op.k(),
                .of_a = false,
                .to = workspace});
  const int64_t whole = op.n() / kTileCols * kTileCols;
  cpu::for_ranges(threads_, op.n(), kTileCols, [&](cpu::Range cols) {
    run_tiles(op, workspace, {cols.begin, std::min(cols.end, whole)});
    if (cols.end > whole) run_columns(op, op.a, {whole, cols.end}, kernels_);
  });
}

}  // namespace weft
