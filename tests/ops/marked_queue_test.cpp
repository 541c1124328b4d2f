// Queues that wait for each other's marks, on a fake device that passes marks when told to.
#include "weft/ops/cuda/marked_queue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "support.h"

namespace weft {
namespace {

struct Device {
  int num_events = 0;
  std::set<int> alive = {};
  int64_t num_recorded = 0;
  std::map<int, int64_t> place = {};               // of each event: how many were recorded till then
  std::set<int64_t> done = {};                     // places
  std::vector<std::pair<int, int64_t>> held = {};  // (queue, the place that it waits for)
};

class DeviceEvents {
 public:
  using Event = int;
  DeviceEvents(Device& d, int queue) : d_(&d), queue_(queue) {}
  Event make() {
    d_->alive.insert(d_->num_events);
    return d_->num_events++;
  }
  void end(Event e) { EXPECT_EQ(d_->alive.erase(e), 1u); }
  void record(Event e) { d_->place[e] = ++d_->num_recorded; }
  bool passed(Event e) { return d_->done.contains(d_->place.at(e)); }
  void copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, size_t(bytes)); }
  void hold_for(Event e) { d_->held.emplace_back(queue_, d_->place.at(e)); }

 private:
  Device* d_;
  int queue_;
};

using Marked = gpu::MarkedQueue<DeviceEvents>;
using Held = std::vector<std::pair<int, int64_t>>;

TEST(MarkedQueue, AnotherWaitsForThePlaceOfAMark) {
  Device d;
  {
    Marked a(DeviceEvents(d, 0)), b(DeviceEvents(d, 1));
    const int64_t first = a.mark(), second = a.mark(), third = a.mark();
    b.wait_for(a, second);
    EXPECT_EQ(d.held, (Held{{1, 2}}));
    d.done = {1, 2};
    EXPECT_TRUE(a.passed(first));
    b.wait_for(a, third);
    b.wait_for(a, second);  // it has passed
    EXPECT_EQ(d.held, (Held{{1, 2}, {1, 3}}));
    a.wait_for(a, third);
    EXPECT_EQ(d.held.size(), 2u);
    EXPECT_FALSE(a.passed(third));
    a.wait_for(b, b.mark());
    EXPECT_EQ(d.held.back(), std::pair(0, int64_t{4}));
  }
  EXPECT_TRUE(d.alive.empty());
}

// One that is recorded anew is none that somebody could still ask for.
TEST(MarkedQueue, EventsThatWerePassedAreUsedAgain) {
  Device d;
  Marked a(DeviceEvents(d, 0)), b(DeviceEvents(d, 1));
  for (int64_t i = 1; i <= 100; ++i) {
    const int64_t mark = a.mark();
    b.wait_for(a, mark);
    EXPECT_EQ(d.held.back(), std::pair(1, i));
    if (i > 3) d.done.insert(i - 3);
  }
  EXPECT_LE(d.num_events, 5);
  EXPECT_TRUE(a.passed(97));
  EXPECT_FALSE(a.passed(98));
}

TEST(MarkedQueue, AllIsPassedWhenTheQueueHasBeenWaitedFor) {
  Device d;
  Marked a(DeviceEvents(d, 0)), b(DeviceEvents(d, 1));
  const int64_t mark = a.mark();
  EXPECT_FALSE(a.passed(mark));
  a.queue_has_passed();
  EXPECT_TRUE(a.passed(mark));
  b.wait_for(a, mark);
  EXPECT_TRUE(d.held.empty());
}

TEST(MarkedQueue, AnothersMarksMustBeItsOwn) {
  Device d;
  Marked a(DeviceEvents(d, 0)), b(DeviceEvents(d, 1));
  a.mark();
  EXPECT_THROW(b.wait_for(a, 2), CheckFailure);
  struct Other final : DeviceQueue {
    int64_t mark() override { return 0; }
    bool passed(int64_t) override { return false; }
    void wait_for(DeviceQueue&, int64_t) override {}
    void copy(void*, const void*, int64_t) override {}
  } other;
  EXPECT_THROW(b.wait_for(other, 1), CheckFailure);
}

}  // namespace
}  // namespace weft
