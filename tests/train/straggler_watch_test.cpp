// Which ranks are found to be slow, and when.
#include "weft/train/straggler_watch.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using Times = std::vector<double>;

TEST(StragglerWatch, TellsOnceOfARankThatIsSlowForFiftyStepsAndOnceThatItIsOver) {
  StragglerWatch watch({0, 0, 0, 0});
  const Times waits{0.5, 0.5, 0.1, 0.5}, slow{1, 1, 1.3, 1.1}, well{1, 1, 1.1, 1};
  for (int64_t step = 10; step <= 40; step += 10) EXPECT_TRUE(watch.add(step, slow, waits).empty()) << step;
  const auto news = watch.add(50, slow, waits);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].rank, 2);
  EXPECT_EQ(news[0].since_step, 1);
  EXPECT_EQ(news[0].compute_s, 1.3);
  EXPECT_EQ(news[0].median_s, 1);
  EXPECT_EQ(news[0].wait_s, 0.1);
  EXPECT_FALSE(news[0].is_over);
  for (int64_t step = 60; step <= 90; step += 10) EXPECT_TRUE(watch.add(step, slow, waits).empty()) << step;
  const auto over = watch.add(100, well, waits);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_TRUE(over[0].is_over);
  EXPECT_EQ(over[0].since_step, 1);
  EXPECT_TRUE(watch.add(110, well, waits).empty());
}

TEST(StragglerWatch, ARankThatKeepsUpForAWindowBeginsAnew) {
  StragglerWatch watch({0, 0});
  const Times waits{0, 0}, slow{1, 1.5}, well{1, 1};
  for (int64_t step = 10; step <= 40; step += 10) watch.add(step, slow, waits);
  EXPECT_TRUE(watch.add(50, well, waits).empty());
  for (int64_t step = 60; step <= 90; step += 10) EXPECT_TRUE(watch.add(step, slow, waits).empty()) << step;
  EXPECT_EQ(watch.add(100, slow, waits).at(0).since_step, 51);
}

// The second rank has three times as many micro-batches; the third is slow with one.
TEST(StragglerWatch, RanksAreComparedByTheWorkThatTheyWereGiven) {
  StragglerWatch watch({0, 0, 0}, {2, 6, 1});
  const Times waits{0, 0, 0}, times{2, 6, 2};
  for (int64_t step = 10; step <= 40; step += 10) EXPECT_TRUE(watch.add(step, times, waits).empty()) << step;
  const auto news = watch.add(50, times, waits);
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].rank, 2);
  EXPECT_EQ(news[0].compute_s, 2);
  EXPECT_EQ(news[0].median_s, 1);
}

TEST(StragglerWatch, RanksOfOtherWorkAreNotCompared) {
  StragglerWatch watch({0, 1, 1});
  for (int64_t step = 10; step <= 100; step += 10)
    EXPECT_TRUE(watch.add(step, Times{9, 1, 1.1}, Times{0, 0, 0}).empty());
}

}  // namespace
}  // namespace weft
