#include "weft/device/arena.h"

#include <gtest/gtest.h>

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
