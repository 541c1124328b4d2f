// Products of the rows of each expert, one expert after the other.
#pragma once
#include <cstddef>
#include <optional>

#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/cpu/matmul_amx.h"
#include "weft/ops/cpu/matmul_converted.h"
#include "weft/ops/ops.h"

namespace weft {

// f32 by F32Matmul; bf16 by AmxMatmul where kernels may use AMX, else like f16 widened to f32: each product has another
// number of rows, and oneDNN would make a primitive for each. All Numerics::invariant: the bits of an expert's rows do
// not depend on the other experts'. Memory is bounded without knowing how many rows an expert has. Not thread-safe: one
// rank, one of these.
class CpuGroupedMatmul {
 public:
  explicit CpuGroupedMatmul(int threads, CpuIsa isa = isa_of_kernels()) : f32_(threads), converted_(threads) {
    if (isa == CpuIsa::amx) amx_.emplace(threads);
  }
  // Temporary memory of `run`, in bytes: enough for any offsets. Reads no memory.
  int64_t workspace_bytes(const GroupedMatmul& op) const;
  int64_t workspace_bytes(const GroupedWeightGrad& op) const;
  // workspace: so many bytes at a multiple of 64. Blocks until done.
  void run(const GroupedMatmul& op, std::byte* workspace) const;
  void run(const GroupedWeightGrad& op, std::byte* workspace) const;

 private:
  bool runs_on_amx(const Matmul& op) const { return amx_ && op.a.dtype == DType::bf16; }
  int64_t most_bytes(const Matmul& largest) const;
  void run(const Matmul& op, std::byte* workspace) const;

  F32Matmul f32_;
  ConvertedMatmul converted_;
  std::optional<AmxMatmul> amx_;
};

}  // namespace weft
