#include "weft/device/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "support.h"

namespace weft {
namespace {

TEST(Arena, CountsExactlyWhatARealOneUses) {
  const auto use = [](Arena& a) {
    a.alloc(DType::f32, {3, 5});
    {
      Scope scope(a);
      a.alloc(DType::f64, {100});
    }
    a.alloc(DType::bf16, {7});
  };
  Arena dry("dry");
  use(dry);
  Arena real("real", dry.peak());
  use(real);
  EXPECT_EQ(real.peak(), dry.peak());
  EXPECT_EQ(real.used(), dry.used());
  EXPECT_EQ(dry.peak(), 64 + 832);
}

TEST(Arena, TensorsBeginOnCacheLines) {
  Arena a("a", 4096);
  a.alloc(DType::u8, {1});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.alloc(DType::f32, {1}).data) % 64, 0u);
}

// Pages of a private mapping are there once they were written to: mincore tells.
TEST(Arena, TouchedMemoryIsThereAndZero) {
  Arena arena("touched", 3 << 20);
  const Tensor all = arena.alloc(DType::f32, {(3 << 20) / 4});
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there(size_t(all.bytes()) / page);
  const auto pages_there = [&] {
    EXPECT_EQ(mincore(all.data, size_t(all.bytes()), there.data()), 0);
    return std::ranges::count_if(there, [](unsigned char c) { return (c & 1) != 0; });
  };
  ASSERT_EQ(pages_there(), 0);
  arena.touch();
  if (pages_there() == 0) GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE (Linux 5.14)";
  EXPECT_EQ(pages_there(), int64_t(there.size()));
  EXPECT_EQ(std::count(all.as<float>(), all.as<float>() + all.elements(), 0.0F), all.elements());
  EXPECT_EQ(arena.peak(), all.bytes());
  Arena("only counts").touch();
}

TEST(Arena, BeyondItsPlanIsACheckFailure) {
  Arena a("a", 64);
  a.alloc(DType::f32, {16});
  EXPECT_THROW(a.alloc(DType::u8, {1}), CheckFailure);
}

TEST(Arena, MoreThanTheHostHasIsAnErrorWithAName) {
  EXPECT_SAYS(testing::error_of<Error>([] { Arena a("everything", int64_t{1} << 60); }), "everything");
}

TEST(Slots, TakingMoreThanPlannedIsACheckFailure) {
  Slots slots("s", 1, 64);
  Arena& a = slots.take();
  EXPECT_THROW(slots.take(), CheckFailure);
  slots.give(a);
  EXPECT_EQ(&slots.take(), &a);
  EXPECT_EQ(slots.most_taken(), 1);
}

}  // namespace
}  // namespace weft
