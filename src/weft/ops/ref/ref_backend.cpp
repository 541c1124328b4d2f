#include "weft/ops/ref/ref_backend.h"

#include "weft/ops/ref/kernels.h"

namespace weft {

RefBackend::RefBackend(int threads) : threads_(threads) { WEFT_CHECK(threads >= 1, "{} threads", threads); }

void RefBackend::run(const AnyOp& op) {
  op.visit([&](const auto& o) { ref::run<double>(o, threads_); });
}

}  // namespace weft
