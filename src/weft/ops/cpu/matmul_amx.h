// Matrix products in bf16 by weft's own kernels, on CPUs with matrix units (AMX).
//   m, n, k  as in Matmul       panel, step  as in matmul_amx_kernels.h
//
// Threads share out as rectangles. In each, one operand stays: blocks of it, packed, fit the L2 cache. The other
// streams by in panels, of which some steps at a time are packed into the L1 cache while those before them are
// multiplied. Sums wait as tiles in f32 until all of k has been added, so a result is rounded once.
//
// Every element of out is one sum in the order of k: its bits depend neither on m, n, strides nor the number of
// threads. So Numerics::invariant costs nothing.
#pragma once
#include <cstddef>

#include "weft/ops/ops.h"

namespace weft {

// The contract of CpuMatmul; bf16 only, sizes > 0, on a CPU where isa_of_this_cpu() is CpuIsa::amx.
class AmxMatmul {
 public:
  explicit AmxMatmul(int threads) : threads_(threads) {}
  int64_t workspace_bytes(const Matmul& op) const;
  int64_t most_workspace_bytes(const Matmul& largest) const;  // of any op that is no larger
  void run(const Matmul& op, std::byte* workspace) const;

 private:
  int threads_;
};

}  // namespace weft
