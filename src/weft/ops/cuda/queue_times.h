// When a queue passed its stamps, by the host's clock.
#pragma once
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <unordered_map>
#include <utility>

#include "weft/base/error.h"
#include "weft/device/device_queue.h"
#include "weft/ops/cuda/event_pool.h"

namespace weft::gpu {

// A device tells only what lies between two of its events. So there is an anchor: an event that the host waited for
// between two looks at its own clock, and that counts as in the middle of the two. Of some tries the one with the least
// between them is taken, so that a time is wrong by half of that at most: some microseconds. An anchor that is older
// than a second is cast anew when no stamp is under way: clocks drift apart (by some microseconds a second), and CUDA's
// floats tell 4 seconds to half a microsecond, the resolution of its events, and longer times less exactly. Differences
// of times with one anchor have no other error.
//
// Events is what the queue has of them (CudaEvents; one of a test is in tests/ops/queue_times_test.cpp):
//   using Event                       cheap to copy
//   Event make(); void end(Event)
//   void record(Event)                where the queue is, also one that was recorded before
//   void record_aside(Event)          beside the queue, where the device has nothing else to do
//   void wait(Event)
//   double ns_between(Event, Event)   of two that were passed
//   int64_t now_ns()                  of the host
// Belongs to one queue; not thread-safe.
template <class Events>
class QueueTimes {
 public:
  explicit QueueTimes(Events events) : events_(std::move(events)), anchor_(events_.take()), tried_(events_.take()) {}
  QueueTimes(const QueueTimes&) = delete;
  QueueTimes& operator=(const QueueTimes&) = delete;
  ~QueueTimes() {
    for (const Mark& m : under_way_) events_.give(m.event);
    events_.give(anchor_);
    events_.give(tried_);
  }

  // Behind what the queue was given so far. Waits for the queue where kMost were made since it was waited for.
  Stamp stamp() {
    if (is_full()) {
      events_->wait(under_way_.back().event);
      queue_has_passed();
    }
    if (under_way_.empty() && (num_stamps_ == 0 || events_->now_ns() - anchor_ns_ > kAnchorLasts)) cast_anchor();
    const auto event = events_.take();
    under_way_.push_back({Stamp(++num_stamps_), event});
    events_->record(event);
    return under_way_.back().stamp;
  }
  bool is_full() const { return under_way_.size() == kMost; }
  // To be called when everything has been waited for that the queue was given, or what came before a stamp.
  void queue_has_passed(Stamp last = Stamp(std::numeric_limits<int64_t>::max())) {
    for (; !under_way_.empty() && under_way_.front().stamp <= last; under_way_.pop_front()) {
      const Mark& m = under_way_.front();
      times_[m.stamp] = anchor_ns_ + int64_t(std::llround(events_->ns_between(anchor_, m.event)));
      events_.give(m.event);
    }
  }
  // The time of a stamp that the queue has passed; then forgets the stamp.
  int64_t take_ns(Stamp stamp) {
    const auto found = times_.find(stamp);
    WEFT_CHECK(found != times_.end(), "stamp {} was not waited for, or taken before", int64_t(stamp));
    const int64_t ns = found->second;
    times_.erase(found);
    return ns;
  }

  static constexpr size_t kMost = size_t{1} << 15;
  static constexpr int kTries = 8;
  static constexpr int64_t kAnchorLasts = 1'000'000'000;

 private:
  using Event = typename Events::Event;
  struct Mark {
    Stamp stamp;
    Event event;
  };

  void cast_anchor() {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < kTries; ++i) {
      const int64_t before = events_->now_ns();
      events_->record_aside(tried_);
      events_->wait(tried_);
      const int64_t between = events_->now_ns() - before;
      if (between >= least) continue;
      least = between;
      anchor_ns_ = before + between / 2;
      std::swap(anchor_, tried_);
    }
  }

  EventPool<Events> events_;
  Event anchor_, tried_;
  int64_t anchor_ns_ = 0, num_stamps_ = 0;
  std::deque<Mark> under_way_;                // in the order of the queue
  std::unordered_map<Stamp, int64_t> times_;  // that were not taken yet
};

}  // namespace weft::gpu
