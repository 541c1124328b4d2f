// The reference backend: every op in fp64 by plain loops. The truth that other backends are tested against.
#pragma once
#include "weft/ops/backend.h"

namespace weft {

// Compute and stat tensors are f64 (anything else is a WEFT_CHECK). Runs in the calling thread, but for matrix products
// and attention, which are spread over `threads`; results do not depend on them.
class RefBackend final : public Backend {
 public:
  explicit RefBackend(int threads);
  void run(const AnyOp& op) override;

 private:
  int threads_;
};

}  // namespace weft
