#include "weft/device/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

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

// Whether this kernel has what touch() asks for: MADV_POPULATE_WRITE of Linux 5.14.
bool kernel_populates() {
  const auto page = size_t(sysconf(_SC_PAGESIZE));
  void* const p = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool done = madvise(p, page, 23) == 0;
  munmap(p, page);
  return done;
}

int64_t faults_of_thread() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_minflt;
}

// All that the arena may hold, whatever of it is in use.
TEST(Arena, TouchedMemoryIsZeroAndWrittenWithoutPageFaults) {
#if defined(WEFT_SANITIZES) || defined(WEFT_SANITIZES_THREADS)
  GTEST_SKIP() << "a sanitizer's notes of each write have page faults of their own";
#endif
  if (!kernel_populates()) GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE (Linux 5.14)";
  Arena arena("touched", 3 << 20);
  arena.touch();
  const Tensor all = arena.alloc(DType::f32, {(3 << 20) / 4});
  auto* const values = all.as<float>();
  const int64_t page = sysconf(_SC_PAGESIZE), before = faults_of_thread();
  for (int64_t at = 0; at < all.elements(); at += page / 4) values[at] = 1;
  EXPECT_LT(faults_of_thread() - before, all.bytes() / page / 10);  // untouched: one each 4 KiB, but for huge pages
  EXPECT_EQ(std::count(values, values + all.elements(), 0.0F), all.elements() - all.bytes() / page);
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
