// Matrix products on the CPU.
//   m, n, k  as in Matmul: op(a) [m, k], op(b) [k, n], out [m, n]
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/numerics.h"
#include "weft/ops/ops.h"

namespace weft {

class AmxMatmul;
class ConvertedMatmul;
class DnnlMatmul;
class F32Matmul;
class FewRowsMatmul;

// Runs Matmul ops on `threads` threads of the caller's own pool. f32 x f32 -> f32; bf16 x bf16 -> bf16 or f32, and
// f16 likewise, summed in f32; bias of the operands' type. Any size, zero included; any row stride.
//
// f32 runs on weft's own kernels (matmul_f32.h): an element's bits follow from its row of op(a), its column of op(b)
// and k alone, but for products of a few rows with a transposed matrix in Numerics::fast, which have kernels of their
// own in every type (matmul_few_rows.h). Where kernels may use AMX, so does all of bf16 in Numerics::invariant, and in
// Numerics::fast what oneDNN is slow at and most products of a few rows (matmul_amx.h; denormal values count as zero).
// The rest of bf16 and f16 runs on oneDNN where it has a kernel for this CPU (AMX, AVX-512 bf16; oneDNN 2 has none for
// f16), else widened to f32. Nothing of a matrix's size is allocated: temporary memory is the caller's. oneDNN makes a
// primitive at a shape's first use (some milliseconds). Not thread-safe: one rank, one CpuMatmul.
class CpuMatmul {
 public:
  CpuMatmul(int threads, Numerics numerics, CpuIsa isa = isa_of_kernels());
  ~CpuMatmul();
  CpuMatmul(CpuMatmul&&) noexcept;
  CpuMatmul& operator=(CpuMatmul&&) noexcept;

  // Temporary memory of `run` for this op, in bytes. Reads shapes, strides and types only, so a dry tensor will do.
  int64_t workspace_bytes(const Matmul& op) const;
  // workspace: workspace_bytes(op) bytes at a multiple of 64, free for other uses afterwards. Blocks until done.
  void run(const Matmul& op, std::byte* workspace);
  // Whose kernel runs this op, and by which instructions: "weft's, AVX3" or "oneDNN's, brg:avx512_core_amx_bf16".
  std::string kernel_of(const Matmul& op) const;

 private:
  bool runs_on_amx(const Matmul& op) const;

  Numerics numerics_;
  std::unique_ptr<FewRowsMatmul> few_rows_;
  std::unique_ptr<F32Matmul> f32_;
  std::unique_ptr<AmxMatmul> amx_;  // null where kernels may not use AMX
  std::unique_ptr<ConvertedMatmul> converted_;
  std::unique_ptr<DnnlMatmul> dnnl_;
};

}  // namespace weft
