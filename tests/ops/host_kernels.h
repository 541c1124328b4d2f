// The GPU's kernels on a CPU, block by block.
#pragma once
#include <cstring>
#include <deque>

#include "weft/ops/backend.h"
#include "weft/ops/cuda/run_kernels.h"

namespace weft::testing {

class HostLauncher {
 public:
  explicit HostLauncher(gpu::HostOrder order = {}) : order_(order) {}
  template <class Kernel>
  void launch(int64_t blocks, const Kernel& kernel) {
    order_.play(blocks, [&](int64_t b) { kernel(gpu::HostBlock(b, order_)); });
  }
  template <class Kernel>
  void launch_tiles(int64_t blocks, const Kernel& kernel) {
    order_.play(blocks, [&](int64_t b) { kernel(gpu::HostTileBlock(b, Kernel::kSharedBytes, order_)); });
  }
  bool has_shared(int64_t) const { return true; }
  template <class E>
  E* memory(int64_t count) {
    memory_.emplace_back(size_t(count) * sizeof(E), std::byte{0xff});
    return reinterpret_cast<E*>(memory_.back().data());
  }
  template <class E>
  const E* copied(std::span<const E> from) {
    E* to = memory<E>(int64_t(from.size()));
    std::memcpy(to, from.data(), from.size_bytes());
    return to;
  }
  void expect_to_wait() const {}
  void fetch(void* to, const void* from, int64_t bytes) const { std::memcpy(to, from, size_t(bytes)); }
  void end() { memory_.clear(); }

 private:
  gpu::HostOrder order_;
  std::deque<std::vector<std::byte>> memory_;
};

class HostKernels final : public Backend {
 public:
  explicit HostKernels(gpu::HostOrder order = {}) : launcher_(order) {}
  void run(const AnyOp& op) override {
    op.visit([&](const auto& o) { apply(o); });
  }
  template <class Op>
  void apply(const Op& op) {
    if constexpr (std::is_same_v<Op, Zero>) {
      const int64_t size = size_of(op.x.dtype);
      for (int64_t i = 0; i < op.x.rows(); ++i)
        std::memset(static_cast<std::byte*>(op.x.data) + i * op.x.row_stride * size, 0, size_t(op.x.cols() * size));
    } else {
      gpu::run(launcher_, op);
    }
    launcher_.end();
  }

 private:
  HostLauncher launcher_;
};

}  // namespace weft::testing
