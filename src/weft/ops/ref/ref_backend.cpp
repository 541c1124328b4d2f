#include "weft/ops/ref/ref_backend.h"

#include "weft/ops/ref/kernels.h"

namespace weft {
namespace {

class RefKernels final : public TypedBackend<RefKernels> {
 public:
  explicit RefKernels(int threads) : threads_(threads) {}

  template <class Op>
  void apply(const Op& op) {
    ref::run<double>(op, threads_);
  }

 private:
  int threads_;
};

}  // namespace

RefBackend::RefBackend(int threads) : kernels_(std::make_unique<RefKernels>(threads)) {
  WEFT_CHECK(threads >= 1, "{} threads", threads);
}

}  // namespace weft
