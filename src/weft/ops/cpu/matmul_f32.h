// Matrix products in f32 by weft's own kernels.
//   m, n, k  as in Matmul       panel  mr rows of a, or nr columns of b       kc  length of a block of k
//
// Threads share out as rectangles and nothing else. In each, one operand stays: blocks of it (some panels, kc deep) are
// packed so that they fit the L2 cache. The other streams by: each panel of it is packed, multiplied with the whole
// block, and dropped, while the next is prefetched. The larger operand streams, so weights and their gradients are
// read and written once, behind the arithmetic.                              after Goto & van de Geijn 2008
//
// Every element of out is summed over k in an order that depends on k alone: neither on m, n, strides, nor on the
// number of threads. So Numerics::invariant costs nothing.
#pragma once
#include <cstddef>

#include "weft/ops/cpu/matmul_f32_kernels.h"
#include "weft/ops/ops.h"

namespace weft {

// The contract of CpuMatmul; f32 only, sizes > 0.
class F32Matmul {
 public:
  explicit F32Matmul(int threads);
  int64_t workspace_bytes(const Matmul& op) const;
  int64_t most_workspace_bytes() const;  // of any op
  void run(const Matmul& op, std::byte* workspace) const;

 private:
  int threads_;
  F32Kernels kernels_;
};

}  // namespace weft
