#include "weft/device/host_parts.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "guarded_memory.h"
#include "weft/device/arena.h"

namespace weft {
namespace {

// A tensor of 3 MiB a row, of which some fit a part, in the middle of wider rows or not.
void expect_comes_back(const std::shared_ptr<Memory>& memory, int64_t rows, int64_t cols, int64_t gap,
                       int64_t num_parts) {
  Arena arena("tensor", rows * (cols + gap) * 4 + kArenaAlignment, memory);
  const Tensor wide = arena.alloc(DType::i32, {rows, cols + gap}), x = wide.slice_cols(0, cols);
  int parts = 0;
  int64_t next = 0;
  write_parts(*memory, x, [&](const Tensor& part, int64_t first) {
    EXPECT_EQ(first, next);
    for (int64_t i = 0; i < part.rows(); ++i)
      std::iota(part.as<int32_t>() + i * part.row_stride, part.as<int32_t>() + i * part.row_stride + cols,
                int32_t((first + i) * cols));
    next += part.rows();
    ++parts;
  });
  EXPECT_EQ(next, rows);
  EXPECT_EQ(parts, num_parts);
  int64_t expected = 0;
  bool equal = true;
  read_parts(*memory, x, [&](const Tensor& part, int64_t first) {
    EXPECT_EQ(first * cols, expected);
    for (int64_t i = 0; i < part.rows(); ++i)
      for (int64_t j = 0; j < cols; ++j) equal &= part.as<int32_t>()[i * part.row_stride + j] == expected++;
  });
  EXPECT_TRUE(equal);
  EXPECT_EQ(expected, rows * cols);
  if (gap == 0) return;
  int64_t sum = 0;  // of what nobody wrote
  read_parts(*memory, wide.slice_cols(cols, gap), [&](const Tensor& part, int64_t) {
    for (int64_t i = 0; i < part.rows(); ++i)
      for (int64_t j = 0; j < gap; ++j) sum += std::abs(part.as<int32_t>()[i * part.row_stride + j]);
  });
  EXPECT_EQ(sum, 0);
}

TEST(HostParts, ComeBackAsTheyWereWritten) {
  const auto guarded = std::make_shared<testing::GuardedMemory>();
  expect_comes_back(host_memory(), 3, 700000, 5, 1);
  expect_comes_back(guarded, 3, 700000, 0, 3);   // 2.8 MB a row: one in 4 MiB
  expect_comes_back(guarded, 2, 1100000, 5, 2);  // a row is longer than that
  for (const int64_t gap : {0, 5}) {
    expect_comes_back(guarded, 500, 3000, gap, 2);  // 349 rows at once
    expect_comes_back(guarded, 10, 7, gap, 1);
  }
}

TEST(HostParts, OfNothingAreNone) {
  const auto guarded = std::make_shared<testing::GuardedMemory>();
  const auto never = [](const Tensor&, int64_t) { FAIL(); };
  read_parts(*guarded, Tensor(nullptr, DType::f32, {0}), never);
  write_parts(*guarded, Tensor(nullptr, DType::f32, {0, 4}), never);
}

TEST(GuardedMemory, IsTouchedWhileItIsOpenAndZeroWhenItIsTaken) {
  const auto guard = std::make_shared<testing::Guard>();
  testing::GuardedMemory memory(guard);
  std::byte *const one = memory.take(5000, "one"), *const two = memory.take(size_t{3} << 20, "two");
  {
    const testing::Opened opened(*guard);
    one[4999] = two[0] = two[(3 << 20) - 1] = std::byte{1};
  }
  EXPECT_DEATH(one[0] = std::byte{2}, "");
  EXPECT_DEATH(two[3 << 19] = std::byte{2}, "");
  memory.give(one, 5000);
  memory.give(two, size_t{3} << 20);
  std::byte* const all = memory.take(size_t{3} << 20, "what both had");
  EXPECT_EQ(all, one);
  const testing::Opened opened(*guard);
  EXPECT_TRUE(std::all_of(all, all + (3 << 20), [](std::byte b) { return b == std::byte{0}; }));
}

}  // namespace
}  // namespace weft
