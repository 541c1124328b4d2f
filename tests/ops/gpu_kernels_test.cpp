// The GPU's kernels on a CPU, block by block: every case equal to the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "ops/cases.h"
#include "weft/base/rng.h"
#include "weft/ops/cuda/run_kernels.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

using testing::op_cases;
using testing::OpCase;

class HostLauncher {
 public:
  template <class Kernel>
  void launch(int64_t blocks, const Kernel& kernel) {
    for (int64_t b = 0; b < blocks; ++b) kernel(gpu::HostBlock(b));
  }
  template <class Kernel>
  void launch_tiles(int64_t blocks, const Kernel& kernel) {
    for (int64_t b = 0; b < blocks; ++b) kernel(gpu::HostTileBlock(b, Kernel::kSharedBytes));
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
  void end() { memory_.clear(); }

 private:
  std::deque<std::vector<std::byte>> memory_;
};

class HostKernels final : public UniformBackend<HostKernels> {
 public:
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

TEST(GpuKernelsSlow, EqualTheReferenceOnEveryCase) {
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    for (const OpCase& c : op_cases(t)) {
      auto trial = c.make();
      HostKernels kernels;
      RefBackend ref(1);
      trial->run(kernels);
      trial->run_exact(ref);
      EXPECT_EQ(trial->difference(), "") << c.name;
      EXPECT_EQ(trial->trespass(), "") << c.name;
    }
  }
}

TEST(GpuKernels, RandomNumbersAreThoseOfAnyBackend) {
  for (uint64_t key : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}, uint64_t{0x123456789abcdef}}) {
    for (uint64_t i : {uint64_t{0}, uint64_t{1}, uint64_t{6}, uint64_t{1} << 33, ~uint64_t{0}}) {
      EXPECT_EQ(gpu::random_bits(key, i), random_bits(key, i));
      EXPECT_EQ(gpu::rng_key_of(key, i), rng_key(key, i));
    }
  }
}

}  // namespace
}  // namespace weft
