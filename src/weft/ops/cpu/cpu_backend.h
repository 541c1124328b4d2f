// The CPU backend: f32, bf16 and f16 on the threads of one rank.
#pragma once
#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/ops/cpu/cpu_workspace.h"
#include "weft/ops/cpu/rows.h"

namespace weft {

// Compute tensors are f32, bf16 or f16, stat tensors f32 (anything else is a WEFT_CHECK); all arithmetic is f32. Every
// op but Matmul gives the same bits for any number of threads; Matmul does as its Numerics say. Kernels are compiled
// for several kinds of CPU, the best for this one is chosen at run time.
//
// An op has finished when `run` returns. Nothing is allocated in it but what a Matmul keeps of a new shape; temporaries
// come from `workspace`, CpuWorkspace(spec).of(op) bytes in one run, and are given back.
class CpuBackend final : public Backend {
 public:
  CpuBackend(CpuSpec spec, Arena& workspace);
  void run(const AnyOp& op) override;

 private:
  void apply(const Matmul&);
  void apply(const BiasGrad&);
  void apply(const Embed&);
  void apply(const EmbedBackward&);
  void apply(const Norm&);
  void apply(const NormApply&);
  void apply(const NormBackward&);
  void apply(const HeadNorm&);
  void apply(const HeadNormBackward&);
  void apply(const RowDots&);
  void apply(const Rope&);
  void apply(const LatentKeys&);
  void apply(const LatentKeysBackward&);
  void apply(const Attention&);
  void apply(const AttentionBackward&);
  void apply(const AttentionMerge&);
  void apply(const AttentionSink&);
  void apply(const AttentionSinkBackward&);
  void apply(const GatedUnit&);
  void apply(const GatedUnitBackward&);
  void apply(const Gelu&);
  void apply(const GeluBackward&);
  void apply(const SoftCap&);
  void apply(const SoftCapBackward&);
  void apply(const Dropout&);
  void apply(const CrossEntropy&);
  void apply(const CrossEntropyPart&);
  void apply(const CrossEntropyJoin&);
  void apply(const DistillPart&);
  void apply(const DistillJoin&);
  void apply(const DistillTopPart&);
  void apply(const DistillTopJoin&);
  void apply(const Add&);
  void apply(const Axpby&);
  void apply(const AddRow&);
  void apply(const ScaleColumns&);
  void apply(const Copy&);
  void apply(const Zero&);
  void apply(const Ones&);
  void apply(const Sum&);
  void apply(const SumSquares&);
  void apply(const CountNonfinite&);
  void apply(const AdamW&);
  void apply(const AdamW8Max&);
  void apply(const AdamW8&);
  void apply(const MaxRows&);
  void apply(const Sgd&);
  void apply(const Dequantise&);
  void apply(const Route&);
  void apply(const RouteBackward&);
  void apply(const RouterSums&);
  void apply(const ExpertLoad&);
  void apply(const GroupRows&);
  void apply(const GatherRows&);
  void apply(const SumRows&);
  void apply(const ScaleRows&);
  void apply(const ScaleRowsBackward&);
  void apply(const GroupedMatmul&);
  void apply(const GroupedWeightGrad&);

  template <class T, class Op>
  T* temporary(const Op& op);
  // Shares the rows, or the elements, of x among the threads.
  template <class Op>
  void by_rows(const Op& op, const Tensor& x, void (*kernel)(const Op&, cpu::Range));
  template <class Op>
  void by_elements(const Op& op, const Tensor& x, void (*kernel)(const Op&, cpu::Range));
  // Shares the code blocks of moments: a thread has whole ones, so that none reads what another writes.
  template <class Op>
  void by_blocks(const Op& op, void (*kernel)(const Op&, cpu::Range));
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
