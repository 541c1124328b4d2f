// The reference backend: every op in fp64 by plain loops. The truth that other backends are tested against.
#pragma once
#include <memory>

#include "weft/ops/any_op.h"

namespace weft {

// Compute and stat tensors are f64 (anything else is a WEFT_CHECK). Runs in the calling thread, but for matrix products
// and attention, which are spread over `threads`; results do not depend on them.
class RefBackend final : public UniformBackend<> {
 public:
  explicit RefBackend(int threads);

 private:
  void apply(const AnyOp& op) override { op.run(*kernels_); }
  std::unique_ptr<Backend> kernels_;  // compiled once, and not by each file that uses them
};

}  // namespace weft
