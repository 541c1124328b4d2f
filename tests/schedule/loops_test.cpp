#include "weft/schedule/loops.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft {
namespace {

// The schedule that loops stand for, written out.
Schedule written_out(const Schedule& schedule, const std::vector<Loop>& loops) {
  Schedule all;
  for (const Loop& loop : loops) {
    for (int64_t time = 0; time < loop.times; ++time) {
      for (size_t i = 0; i < loop.length; ++i) {
        Action a = schedule[loop.first + i];
        a.micro_batch += time * loop.shift;
        all.push_back(a);
      }
    }
  }
  return all;
}

TEST(Loops, OfManyMicroBatchesTheSteadyPartIsOne) {
  EXPECT_EQ(loops_of(one_f_one_b({}, 20)), (std::vector<Loop>{{0, 2, 20, 1}}));
  EXPECT_EQ(loops_of(gpipe({}, 20)), (std::vector<Loop>{{0, 1, 20, 1}, {20, 1, 20, 1}}));
  const std::vector<Loop> first_of_three = loops_of(one_f_one_b({.stage = 0, .num_stages = 3}, 20));
  ASSERT_EQ(first_of_three.size(), 5u);  // F0 F1, then 18 times F B, then B18 B19
  EXPECT_EQ(first_of_three[2], (Loop{2, 2, 18, 1}));
  for (int stage = 0; stage < 4; ++stage) {  // 2 x 4 x 2 actions, four micro-batches further each time
    int64_t most = 0;
    for (const Loop& loop : loops_of(interleaved_1f1b({.stage = stage, .num_stages = 4}, 2, 400)))
      most = std::max(most, int64_t(loop.length) * loop.times);
    EXPECT_GT(most, 1500) << "of 1600, stage " << stage;
  }
}

TEST(Loops, AreTheWholeScheduleInItsOrder) {
  for (const std::string_view name : kScheduleNames) {
    for (const int stages : {1, 2, 3, 5}) {
      if (name == "zbv" && stages == 1) continue;
      const int chunks = name == "interleaved_1f1b" ? 3 : 0;
      const Pipeline pipeline = pipeline_named(name, stages, chunks);
      for (const int64_t m : {1, 7, 40, 97})
        for (const Schedule& s : schedules_of(pipeline, m)) EXPECT_EQ(written_out(s, loops_of(s)), s) << name << m;
    }
  }
}

TEST(Loops, AreNoMoreWhereThereAreMoreMicroBatches) {
  for (const std::string_view name : kScheduleNames) {
    const Pipeline pipeline = pipeline_named(name, 4, name == "interleaved_1f1b" ? 2 : 0);
    const auto few = schedules_of(pipeline, 200), many = schedules_of(pipeline, 2000);
    for (size_t stage = 0; stage < few.size(); ++stage)
      EXPECT_EQ(loops_of(few[stage]).size(), loops_of(many[stage]).size()) << name << " stage " << stage;
  }
}

}  // namespace
}  // namespace weft
