// Products of a few rows with a transposed matrix: what a model multiplies for the next token of some texts.
//   m, n, k  as in Matmul
#pragma once
#include <cstddef>

#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/cpu/matmul_few_rows_kernels.h"
#include "weft/ops/numerics.h"
#include "weft/ops/ops.h"

namespace weft {

// a [m, k] times the transpose of b [n, k], m <= kMostRows. Nothing of b is packed: each thread reads its part of b
// once, as fast as memory gives it, and widens 16-bit numbers on the way, but for bf16 where the CPU multiplies pairs
// of them (denormal values count as zero). Sums are in f32, over k in an order that depends on k alone: the bits of a
// row depend on no other row, nor on the number of threads. They differ from those of products of more rows, so
// Numerics::invariant takes none of these. Where kernels may use AMX, bf16 is multiplied by it if k is of whole steps:
// 16 rows take it no longer than one.
class FewRowsMatmul {
 public:
  static constexpr int64_t kMostRows = 16;  // beyond, packing gains more than it costs
  FewRowsMatmul(int threads, Numerics numerics, CpuIsa isa);
  bool takes(const Matmul& op) const;
  // The contract of CpuMatmul, of what `takes` says; sizes > 0.
  int64_t workspace_bytes(const Matmul& op) const;
  void run(const Matmul& op, std::byte* workspace) const;
  bool runs_on_amx(const Matmul& op) const;       // but for what is left of n behind whole tiles
  bool multiplies_pairs(const Matmul& op) const;  // of bf16, where not by AMX

 private:
  void run_on_amx(const Matmul& op, std::byte* workspace) const;
  int threads_;
  Numerics numerics_;
  CpuIsa isa_;
  FewRowsKernels kernels_;
};

}  // namespace weft
