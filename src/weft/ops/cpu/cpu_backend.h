// The CPU backend: f32, bf16 and f16 on the threads of one rank.
#pragma once
#include "weft/device/arena.h"
#include "weft/ops/cpu/cpu_workspace.h"
#include "weft/ops/cpu/rows.h"

namespace weft {

// Compute tensors are f32, bf16 or f16, stat tensors f32 (anything else is a WEFT_CHECK); all arithmetic is f32. Every
// op but Matmul gives the same bits for any number of threads; Matmul does as its Numerics say. Kernels are compiled
// for several kinds of CPU, the best for this one is chosen at run time.
//
// An op has finished when `run` returns. Nothing is allocated in it but what a Matmul keeps of a new shape; temporaries
// come from `workspace`, CpuWorkspace(spec).of(op) bytes in one piece, and are given back.
class CpuBackend final : public Backend {
 public:
  CpuBackend(CpuSpec spec, Arena& workspace);
  void run(const Matmul&) override;
  void run(const BiasGrad&) override;
  void run(const Embed&) override;
  void run(const EmbedBackward&) override;
  void run(const Norm&) override;
  void run(const NormApply&) override;
  void run(const NormBackward&) override;
  void run(const HeadNorm&) override;
  void run(const HeadNormBackward&) override;
  void run(const RowDots&) override;
  void run(const Rope&) override;
  void run(const LatentKeys&) override;
  void run(const LatentKeysBackward&) override;
  void run(const Attention&) override;
  void run(const AttentionBackward&) override;
  void run(const AttentionMerge&) override;
  void run(const AttentionSink&) override;
  void run(const AttentionSinkBackward&) override;
  void run(const GatedUnit&) override;
  void run(const GatedUnitBackward&) override;
  void run(const Gelu&) override;
  void run(const GeluBackward&) override;
  void run(const SoftCap&) override;
  void run(const SoftCapBackward&) override;
  void run(const Dropout&) override;
  void run(const CrossEntropy&) override;
  void run(const CrossEntropyPart&) override;
  void run(const CrossEntropyJoin&) override;
  void run(const Add&) override;
  void run(const Axpby&) override;
  void run(const AddRow&) override;
  void run(const Copy&) override;
  void run(const Zero&) override;
  void run(const Ones&) override;
  void run(const Sum&) override;
  void run(const SumSquares&) override;
  void run(const CountNonfinite&) override;
  void run(const AdamW&) override;
  void run(const Sgd&) override;
  void run(const Route&) override;
  void run(const RouteBackward&) override;
  void run(const RouterSums&) override;
  void run(const ExpertLoad&) override;
  void run(const GroupRows&) override;
  void run(const GatherRows&) override;
  void run(const SumRows&) override;
  void run(const ScaleRows&) override;
  void run(const ScaleRowsBackward&) override;
  void run(const GroupedMatmul&) override;
  void run(const GroupedWeightGrad&) override;

 private:
  template <class T, class Op>
  T* temporary(const Op& op);
  // Shares the rows, or the elements, of x among the threads.
  template <class Op>
  void by_rows(const Op& op, const Tensor& x, void (*kernel)(const Op&, cpu::Range));
  template <class Op>
  void by_elements(const Op& op, const Tensor& x, void (*kernel)(const Op&, cpu::Range));
  // The sum, by `add`, of part(x, range) over fixed ranges of the elements.
  template <class Op, class F, class G>
  void reduce(const Op& op, const F& part, const G& add);

  int threads_;
  CpuWorkspace model_;
  CpuMatmul matmul_;
  CpuGroupedMatmul grouped_;
  Arena& workspace_;
};

}  // namespace weft
