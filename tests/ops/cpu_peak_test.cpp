// The machine's speed as measured: in the range of what machines can do, and steady.
#include "weft/ops/cpu/peak.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace weft {
namespace {

TEST(Peak, MatmulRateIsPlausibleAndSoonMeasured) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const auto begin = std::chrono::steady_clock::now();
    const double flops = measure_matmul_flops(1, type);
    EXPECT_GT(flops, 1e8);
    EXPECT_LT(flops, 1e14);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));  // a sanitizer on a busy machine
  }
}

TEST(Peak, BandwidthIsPlausible) {
  std::vector<std::byte> memory(32 << 20);
  const double bytes_per_s = measure_memory_bandwidth(2, memory);
  EXPECT_GT(bytes_per_s, 1e7);
  EXPECT_LT(bytes_per_s, 1e13);
}

}  // namespace
}  // namespace weft
