// Matrix products of bf16 and f16 on CPUs without instructions for them.
#pragma once
#include <cstddef>

#include "weft/ops/cpu/matmul_f32.h"

namespace weft {

// Widens the operands into the workspace and multiplies in f32: exact but for the rounding of `out`, at the cost of
// a workspace as large as the operands. Invariant in the number of threads, as F32Matmul is.
class ConvertedMatmul {
 public:
  explicit ConvertedMatmul(int threads) : threads_(threads), f32_(threads) {}
  int64_t workspace_bytes(const Matmul& op) const;
  int64_t most_workspace_bytes(const Matmul& op) const;  // of any op whose operands are no larger
  void run(const Matmul& op, std::byte* workspace) const;

 private:
  struct Layout;
  int threads_;
  F32Matmul f32_;
};

}  // namespace weft
