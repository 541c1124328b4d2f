#include "weft/comm/host_mover.h"

#include <cstring>

#include "weft/comm/rank_sum.h"

namespace weft {
namespace {

class HostMover final : public Mover {
 public:
  void copy(void* to, const void* from, int64_t bytes) const override { std::memcpy(to, from, size_t(bytes)); }
  void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) const override {
    sum_ranks(from, dtype, n, out);
  }
  void sum_in_place(std::span<void* const> ranks, int, DType dtype, int64_t n) const override {
    sum_ranks_in_place(ranks, dtype, n);
  }
};

}  // namespace

const std::shared_ptr<const Mover>& host_mover() {
  static const std::shared_ptr<const Mover> mover = std::make_shared<HostMover>();
  return mover;
}

}  // namespace weft
