// What the CPU backend's kernels need beside their operands.
#pragma once
#include <mutex>

#include "weft/ops/backend.h"
#include "weft/ops/cpu/attention.h"
#include "weft/ops/cpu/grouped_matmul.h"
#include "weft/ops/cpu/matmul.h"
#include "weft/ops/cpu/reduce.h"
#include "weft/ops/numerics.h"

namespace weft {

struct CpuSpec {
  int threads = 1;
  Numerics numerics = Numerics::fast;
  bool tiles = true;  // attention of bf16 by matrix units, where kernels may use them (isa_of_kernels)
};

// The same functions plan a CpuBackend's workspace and serve it, so what was planned is what is used. Multiples of 64.
// Thread-safe: ranks that are threads plan by the same one.
class CpuWorkspace final : public WorkspaceModel {
 public:
  explicit CpuWorkspace(CpuSpec spec)
      : threads_(spec.threads),
        units_(cpu::attention_units(spec.tiles)),
        matmul_(spec.threads, spec.numerics),
        grouped_(spec.threads) {}
  int64_t bytes(const Matmul& op) const override;
  int64_t bytes(const BiasGrad& op) const override;
  int64_t bytes(const NormBackward& op) const override;
  int64_t bytes(const HeadNormBackward& op) const override;
  int64_t bytes(const CrossEntropy& op) const override;
  int64_t bytes(const Attention& op) const override;
  int64_t bytes(const AttentionBackward& op) const override;
  int64_t bytes(const AttentionSinkBackward& op) const override;
  int64_t bytes(const Sum& op) const override;
  int64_t bytes(const SumSquares& op) const override;
  int64_t bytes(const CountNonfinite& op) const override;
  int64_t bytes(const RouterSums& op) const override;
  int64_t bytes(const GroupedMatmul& op) const override;
  int64_t bytes(const GroupedWeightGrad& op) const override;
  using WorkspaceModel::bytes;
  cpu::AttentionUnits units() const { return units_; }

 private:
  int threads_;
  cpu::AttentionUnits units_;
  mutable std::mutex mutex_;  // of matmul_, which keeps a primitive for each shape it was asked about
  CpuMatmul matmul_;
  CpuGroupedMatmul grouped_;
};

}  // namespace weft
