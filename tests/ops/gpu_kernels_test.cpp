// The GPU's kernels on a CPU, block by block: every case equal to the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/cases.h"
#include "ops/host_kernels.h"
#include "weft/base/rng.h"
#include "weft/comm/host_mover.h"
#include "weft/ops/cuda/rank_sum.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

using testing::op_cases;
using testing::OpCase;

using testing::HostKernels;
using testing::HostLauncher;

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

// The sum over ranks that a GPU makes has the bits of the host's.
template <class T>
void expect_sum_of_ranks(int num_ranks, int64_t n, bool in_place) {
  std::vector<std::vector<T>> ranks(static_cast<size_t>(num_ranks));
  for (size_t r = 0; r < ranks.size(); ++r)
    for (int64_t i = 0; i < n; ++i)
      ranks[r].push_back(T(std::ldexp(std::sin(double(i) + 3.0 * double(r)), int(i % 9))));
  auto expected = ranks;
  std::vector<T> out(size_t(n), T(0.0f)), expected_out = out;
  gpu::RankSum<T> kernel = {.from = {}, .num_ranks = num_ranks, .out = in_place ? nullptr : out.data(), .n = n};
  std::vector<void*> there;
  for (size_t r = 0; r < ranks.size(); ++r) kernel.from[r] = ranks[r].data(), there.push_back(expected[r].data());
  HostLauncher().launch((n + kernel.kRun - 1) / kernel.kRun, kernel);
  if (in_place)
    host_mover()->sum_in_place(there, 0, dtype_of<T>, n);
  else
    host_mover()->sum(std::vector<const void*>(there.begin(), there.end()), dtype_of<T>, n, expected_out.data());
  const auto same = [](const std::vector<T>& a, const std::vector<T>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  };
  EXPECT_TRUE(same(out, expected_out));
  for (size_t r = 0; r < ranks.size(); ++r) EXPECT_TRUE(same(ranks[r], expected[r])) << "rank " << r;
}

TEST(GpuKernels, SumsOfRanksHaveTheBitsOfTheHosts) {
  for (const bool in_place : {false, true}) {
    for (const int64_t n : {int64_t{1}, int64_t{2049}}) {
      expect_sum_of_ranks<double>(3, n, in_place);
      expect_sum_of_ranks<float>(5, n, in_place);
      expect_sum_of_ranks<bf16>(4, n, in_place);
      expect_sum_of_ranks<f16>(2, n, in_place);
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
