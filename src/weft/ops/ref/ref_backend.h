// The reference backend: every op in fp64 by plain loops. The truth that other backends are tested against.
#pragma once
#include "weft/ops/backend.h"

namespace weft {

// Compute and stat tensors are f64 (anything else is a WEFT_CHECK). Runs in the calling thread, but for matrix products
// and attention, whose rows are spread over `threads`; results do not depend on them.
class RefBackend final : public Backend {
 public:
  explicit RefBackend(int threads) : threads_(threads) {}
  void run(const Matmul&) override;
  void run(const BiasGrad&) override;
  void run(const Embed&) override;
  void run(const EmbedBackward&) override;
  void run(const Norm&) override;
  void run(const NormApply&) override;
  void run(const NormBackward&) override;
  void run(const HeadNorm&) override;
  void run(const HeadNormBackward&) override;
  void run(const Rope&) override;
  void run(const Attention&) override;
  void run(const AttentionBackward&) override;
  void run(const Swiglu&) override;
  void run(const SwigluBackward&) override;
  void run(const Gelu&) override;
  void run(const GeluBackward&) override;
  void run(const Dropout&) override;
  void run(const CrossEntropy&) override;
  void run(const Add&) override;
  void run(const AddRow&) override;
  void run(const Copy&) override;
  void run(const Zero&) override;
  void run(const Sum&) override;
  void run(const SumSquares&) override;
  void run(const CountNonfinite&) override;
  void run(const AdamW&) override;
  void run(const Sgd&) override;

 private:
  int threads_;
};

}  // namespace weft
