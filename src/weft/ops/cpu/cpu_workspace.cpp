#include "weft/ops/cpu/cpu_workspace.h"

#include "weft/device/arena.h"
#include "weft/ops/cpu/cross_entropy.h"
#include "weft/ops/cpu/team.h"

namespace weft {
namespace {

// As an arena rounds.
int64_t rounded(int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }
int64_t chunk_sums(int64_t rows, int64_t columns) {
  return rounded(cpu::Chunks{rows}.count() * columns * size_of(DType::f32));
}
int64_t partial_sums(const Tensor& x) { return rounded(cpu::sum_parts_of(x) * size_of(DType::f64)); }

}  // namespace

int64_t CpuWorkspace::bytes(const Matmul& op) const {
  const std::lock_guard lock(mutex_);
  return rounded(matmul_.workspace_bytes(op));
}
int64_t CpuWorkspace::bytes(const BiasGrad& op) const { return chunk_sums(op.dy.rows(), op.dy.cols()); }
int64_t CpuWorkspace::bytes(const NormBackward& op) const {
  return chunk_sums(op.x.rows(), op.db ? 2 * op.x.cols() : op.x.cols());
}
int64_t CpuWorkspace::bytes(const HeadNormBackward& op) const { return chunk_sums(op.x.rows(), op.w.elements()); }
int64_t CpuWorkspace::bytes(const CrossEntropy& op) const {
  return threads_ * cpu::cross_entropy_room(op) * size_of(DType::f32);
}
int64_t CpuWorkspace::bytes(const Attention& op) const { return rounded(cpu::attention_bytes(op, threads_, units_)); }
int64_t CpuWorkspace::bytes(const AttentionBackward& op) const {
  return rounded(cpu::attention_bytes(op, threads_, units_));
}
int64_t CpuWorkspace::bytes(const AttentionSinkBackward& op) const {
  return chunk_sums(op.o.rows(), op.sinks.elements());
}
int64_t CpuWorkspace::bytes(const Sum& op) const { return partial_sums(op.x); }
int64_t CpuWorkspace::bytes(const SumSquares& op) const { return partial_sums(op.x); }
int64_t CpuWorkspace::bytes(const CountNonfinite& op) const { return partial_sums(op.x); }
int64_t CpuWorkspace::bytes(const RouterSums& op) const {
  return rounded(cpu::Chunks{op.logits.rows()}.count() * op.sums.bytes());
}
int64_t CpuWorkspace::bytes(const GroupedMatmul& op) const { return rounded(grouped_.workspace_bytes(op)); }
int64_t CpuWorkspace::bytes(const GroupedWeightGrad& op) const { return rounded(grouped_.workspace_bytes(op)); }

}  // namespace weft
