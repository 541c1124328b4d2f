// The GPU's kernels on a CPU, block by block: every case equal to the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

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

constexpr int kTried = 6;  // cases of an op

using gpu::HostOrder;

// "" or the first other order of a phase's items that gives other bits than the one in which a kernel is written.
std::string other_bits_in_another_order(testing::Trial& trial, const std::vector<std::byte>& bits) {
  for (const auto& [name, kind] :
       {std::pair{"reversed", HostOrder::Kind::descending}, std::pair{"shuffled", HostOrder::Kind::shuffled}}) {
    trial.reset();
    HostKernels kernels(kind);
    trial.run(kernels);
    if (trial.outputs() != bits || !trial.trespass().empty()) return name;
  }
  return "";
}

TEST(GpuKernelsSlow, EqualTheReferenceOnEveryCaseInEveryOrder) {
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    for (const OpCase& c : op_cases(t)) {
      auto trial = c.make();
      HostKernels kernels;
      RefBackend ref(1);
      trial->run(kernels);
      trial->run_exact(ref);
      EXPECT_EQ(trial->difference(), "") << c.name;
      EXPECT_EQ(trial->trespass(), "") << c.name;
      EXPECT_EQ(other_bits_in_another_order(*trial, trial->outputs()), "") << c.name;
    }
  }
}

// For the quick suite, and so for its run under sanitizers: a part of those, and heads that are not the first.
TEST(GpuKernels, EqualTheReferenceOnSomeCases) {
  for (DType t : {DType::f32, DType::bf16}) {
    const std::vector<OpCase> all = op_cases(t);
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % 13 != 0 && all[i].name.find("heads 4 and 5") == std::string::npos) continue;
      auto trial = all[i].make();
      HostKernels kernels;
      RefBackend ref(1);
      trial->run(kernels);
      trial->run_exact(ref);
      EXPECT_EQ(trial->difference(), "") << all[i].name;
      EXPECT_EQ(trial->trespass(), "") << all[i].name;
    }
  }
}

// The same of the first cases of each op, which are small.
TEST(GpuKernels, EqualTheReferenceOnSmallCasesInEveryOrder) {
  for (DType t : {DType::f32, DType::bf16}) {
    std::map<std::string, int> tried;
    for (const OpCase& c : op_cases(t)) {
      if (int& before = tried[c.name.substr(0, c.name.find(' '))]; before++ >= kTried) continue;
      auto trial = c.make();
      HostKernels kernels;
      RefBackend ref(1);
      trial->run(kernels);
      trial->run_exact(ref);
      EXPECT_EQ(trial->difference(), "") << c.name;
      EXPECT_EQ(other_bits_in_another_order(*trial, trial->outputs()), "") << c.name;
    }
  }
}

// Kernels that are wrong on a GPU, for the stand-ins to see.
struct Merged {  // two phases in one: an item reads what its neighbour writes
  float* to;
  int64_t n;
  template <class Block>
  void operator()(const Block& block) const {
    float* shared = block.numbers();
    block.each(n, [&](int64_t i) {
      shared[i] = float(i + 1);
      to[i] = i > 0 ? shared[i - 1] : 0;
    });
  }
};
struct MovedInPlace {  // an item's place is read by its neighbour
  float* x;
  int64_t n;
  template <class Block>
  void operator()(const Block& block) const {
    block.map(
        n - 1, [&](int64_t i) { return x[i + 1]; }, [&](int64_t i, float y) { x[i] = y; });
  }
};
struct BetweenBlocks {  // a block reads what the one before it writes
  float* x;
  template <class Block>
  void operator()(const Block& block) const {
    block.each(1, [&](int64_t) { x[block.index() + 1] = x[block.index()] + 1; });
  }
};
struct BetweenLanes {
  float* to;
  static constexpr int64_t kSharedBytes = gpu::kThreads * int64_t(sizeof(float));
  template <class Block>
  void operator()(const Block& block) const {
    float* shared = static_cast<float*>(block.shared());
    block.warps([&](const auto& warp) {
      warp.lanes([&](int lane) {
        const int i = warp.index() * gpu::kLanes + lane;
        shared[i] = float(i);
        to[i] = lane > 0 ? shared[i - 1] : 0;
      });
    });
  }
};
struct Fetched {
  const float* from;
  float* to;
  bool waits, each;
  static constexpr int64_t kSharedBytes = gpu::kCopyBytes;
  template <class Block>
  void operator()(const Block& block) const {
    float* shared = static_cast<float*>(block.shared());
    if (each) block.each(4, [&](int i) { shared[i] = from[i]; });
    if (!each) block.template fetch<1>(shared, 4, 1, 1, [&](int) { return from; });
    block.end_of_batch();
    if (waits) block.template fetched<0>();
    block.warps([&](const auto& warp) {
      warp.lanes([&](int lane) {
        if (warp.index() == 0 && lane < 4) to[lane] = shared[lane];
      });
    });
  }
};

template <class Launch>
bool order_matters(const std::vector<float>& at_first, const Launch& launch) {
  std::vector<std::vector<float>> all;
  for (const auto kind : {HostOrder::Kind::ascending, HostOrder::Kind::descending, HostOrder::Kind::shuffled}) {
    all.push_back(at_first);
    launch(HostLauncher(kind), all.back().data());
  }
  return std::memcmp(all[0].data(), all[1].data(), 4 * at_first.size()) != 0 ||
         std::memcmp(all[0].data(), all[2].data(), 4 * at_first.size()) != 0;
}

TEST(GpuKernels, TheStandInsSeePhasesThatShouldBeTwo) {
  std::vector<float> x(gpu::kThreads);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(i * i);
  const auto n = int64_t(x.size());
  EXPECT_TRUE(order_matters(x, [&](HostLauncher gpu, float* y) { gpu.launch(1, Merged{y, n}); }));
  EXPECT_TRUE(order_matters(x, [&](HostLauncher gpu, float* y) { gpu.launch(1, MovedInPlace{y, n}); }));
  EXPECT_TRUE(order_matters(x, [&](HostLauncher gpu, float* y) { gpu.launch(n - 1, BetweenBlocks{y}); }));
  EXPECT_TRUE(order_matters(x, [&](HostLauncher gpu, float* y) { gpu.launch_tiles(1, BetweenLanes{y}); }));
}

TEST(GpuKernels, WhatIsFetchedIsThereOnceItWasWaitedFor) {
  alignas(16) const float from[4] = {1, 2, 3, 4};
  float to[4] = {};
  HostLauncher().launch_tiles(1, Fetched{from, to, true, false});
  EXPECT_EQ(to[3], 4);
  HostLauncher().launch_tiles(1, Fetched{from, to, false, false});
  EXPECT_TRUE(std::isnan(to[3]));
  HostLauncher().launch_tiles(1, Fetched{from, to, true, true});
  EXPECT_EQ(to[3], 4);
  EXPECT_THROW(HostLauncher().launch_tiles(1, Fetched{from, to, false, true}), CheckFailure);
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
