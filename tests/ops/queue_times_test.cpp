// The times of a queue, of a device whose clock is its own.
#include "weft/ops/cuda/queue_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "support.h"

namespace weft {
namespace {

// The host's clock is exact. The device's clock has another zero and runs `too_fast`. An event takes 4 us to reach the
// device, and the host learns 10 us later that it passed; in one try of eight, 2 us later.
struct ClockedDevice {
  double true_ns = 5e12, passes_ns = 0, too_fast = 0;
  int num_events = 0, num_waits = 0;
  std::set<int> alive = {};
  std::vector<double> passed_at = {};  // of each event, by the host's clock

  // Ops that take so long, given now.
  void work(double ns) { passes_ns = std::max(passes_ns, true_ns) + ns; }
};

class ClockedEvents {
 public:
  using Event = int;
  explicit ClockedEvents(ClockedDevice& d) : d_(&d) {}
  Event make() {
    d_->alive.insert(d_->num_events);
    d_->passed_at.push_back(0);
    return d_->num_events++;
  }
  void end(Event e) { EXPECT_EQ(d_->alive.erase(e), 1u); }
  void record(Event e) {
    d_->true_ns += 4e3;
    d_->passes_ns = std::max(d_->passes_ns, d_->true_ns);
    d_->passed_at[size_t(e)] = d_->passes_ns;
  }
  void record_aside(Event e) { d_->passed_at[size_t(e)] = d_->true_ns += 4e3; }
  void wait(Event e) {
    d_->true_ns = std::max(d_->true_ns, d_->passed_at[size_t(e)]) + (++d_->num_waits % 8 == 5 ? 2e3 : 10e3);
  }
  double ns_between(Event a, Event b) { return double(float((device_ns(b) - device_ns(a)) * 1e-6)) * 1e6; }
  int64_t now_ns() { return int64_t(d_->true_ns); }

 private:
  double device_ns(Event e) const { return 77e9 + d_->passed_at[size_t(e)] * (1 + d_->too_fast); }
  ClockedDevice* d_;
};

using Times = gpu::QueueTimes<ClockedEvents>;

TEST(QueueTimes, TellsWhenTheQueuePassedByTheHostsClock) {
  ClockedDevice d;
  {
    Times times{ClockedEvents(d)};
    const Stamp a = times.stamp();
    const double a_ns = d.passes_ns;
    d.work(3e6);
    const Stamp b = times.stamp();
    d.work(5e6);
    const Stamp c = times.stamp();
    EXPECT_THROW(times.take_ns(a), CheckFailure);  // nobody has waited
    d.true_ns += 20e6;
    times.queue_has_passed();
    const int64_t c_ns = times.take_ns(c), first_ns = times.take_ns(a);
    EXPECT_NEAR(double(first_ns), a_ns, 3e3 + 1);  // half of the narrowest try
    EXPECT_EQ(times.take_ns(b) - first_ns, 3'000'000);
    EXPECT_NEAR(double(c_ns - first_ns), 8e6, 1);
    EXPECT_THROW(times.take_ns(a), CheckFailure);  // it was taken
  }
  EXPECT_TRUE(d.alive.empty());
}

// Two clocks of which one gains 20 us a second are the same to some microseconds, for an hour.
TEST(QueueTimes, SetsItsClockAnewWhereTheQueueIsWaitedFor) {
  ClockedDevice d{.too_fast = 20e-6};
  Times times{ClockedEvents(d)};
  double last_ns = 0;
  for (int step = 0; step < 3600; ++step) {
    const Stamp s = times.stamp();
    const double s_ns = d.passes_ns;
    d.work(0.7e9);
    const Stamp e = times.stamp();
    const double e_ns = d.passes_ns;
    d.true_ns = d.passes_ns + 0.3e9;
    times.queue_has_passed();
    const auto got_s = double(times.take_ns(s)), got_e = double(times.take_ns(e));
    ASSERT_NEAR(got_s, s_ns, 40e3) << step;
    ASSERT_NEAR(got_e, e_ns, 60e3) << step;
    ASSERT_GT(got_s, last_ns) << step;
    last_ns = got_e;
  }
  EXPECT_LT(d.num_events, 8);  // they are used again
}

// A queue may have much to do, or wait for others.
TEST(QueueTimes, StampsDoNotWaitForTheQueue) {
  ClockedDevice d;
  Times times{ClockedEvents(d)};
  d.work(5e9);
  const double began_ns = d.true_ns;
  const Stamp a = times.stamp();
  EXPECT_LT(d.true_ns - began_ns, 1e6);
  const double a_ns = d.passes_ns;
  d.true_ns = d.passes_ns + 1e3;
  times.queue_has_passed();
  EXPECT_NEAR(double(times.take_ns(a)), a_ns, 3e3 + 500);  // and what a float tells of five seconds
}

TEST(QueueTimes, TellsWhatWasPassedWhileTheRestIsUnderWay) {
  ClockedDevice d;
  Times times{ClockedEvents(d)};
  const Stamp a = times.stamp(), b = times.stamp();
  d.work(3e6);
  const Stamp c = times.stamp();
  times.queue_has_passed(b);
  EXPECT_GT(times.take_ns(b), times.take_ns(a));
  EXPECT_THROW(times.take_ns(c), CheckFailure);
  times.queue_has_passed(a);
  EXPECT_THROW(times.take_ns(c), CheckFailure);
  times.queue_has_passed(c);
  EXPECT_GT(times.take_ns(c), 0);
}

TEST(QueueTimes, NeverHasMoreEventsThanItMay) {
  ClockedDevice d;
  Times times{ClockedEvents(d)};
  std::vector<Stamp> all;
  for (size_t i = 0; i < Times::kMost + 10; ++i) all.push_back(times.stamp());
  EXPECT_EQ(d.num_events, int(Times::kMost) + 2);
  times.queue_has_passed();
  int64_t last = 0;
  for (const Stamp s : all) {
    const int64_t ns = times.take_ns(s);
    EXPECT_GT(ns, last);
    last = ns;
  }
}

}  // namespace
}  // namespace weft
