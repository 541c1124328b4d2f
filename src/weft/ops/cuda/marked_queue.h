// A GPU's queue, with events at the places that something waits for.
#pragma once
#include <deque>
#include <utility>

#include "weft/base/error.h"
#include "weft/device/device_queue.h"
#include "weft/ops/cuda/event_pool.h"

namespace weft::gpu {

// Events is what the queue has of them (CudaMarks; one of a test is in tests/ops/marked_queue_test.cpp):
//   using Event                 cheap to copy
//   Event make(); void end(Event)
//   void record(Event)          where the queue is, also one that was recorded before: who waits for it by then waits
//                               for the place that it had
//   bool passed(Event)
//   void hold_for(Event)        of another queue: what this one is given comes behind it
//   void copy(void*, const void*, int64_t)
// Belongs to one queue; not thread-safe.
template <class Events>
class MarkedQueue final : public DeviceQueue {
 public:
  explicit MarkedQueue(Events events) : events_(std::move(events)) {}
  MarkedQueue(const MarkedQueue&) = delete;
  MarkedQueue& operator=(const MarkedQueue&) = delete;
  ~MarkedQueue() override {
    for (const Mark& m : marks_) events_.give(m.event);
  }

  int64_t mark() override {
    while (!marks_.empty() && first_has_passed()) {}  // so that there are no more events than places under way
    const auto event = events_.take();
    marks_.push_back({++marked_, event});
    events_->record(event);
    return marked_;
  }
  bool passed(int64_t mark) override {
    while (passed_ < mark && !marks_.empty() && first_has_passed()) {}
    return passed_ >= mark;
  }
  void wait_for(DeviceQueue& other, int64_t mark) override {
    auto* const marked = dynamic_cast<MarkedQueue*>(&other);
    WEFT_CHECK(marked != nullptr, "a GPU's queue is to wait for one of another kind");
    WEFT_CHECK(mark <= marked->marked_, "mark {} of a queue that has made {}", mark, marked->marked_);
    if (marked == this || marked->passed(mark)) return;
    const auto& marks = marked->marks_;  // of consecutive numbers
    events_->hold_for(marks[size_t(mark - marks.front().number)].event);
  }
  void copy(void* to, const void* from, int64_t bytes) override { events_->copy(to, from, bytes); }
  // To be called when everything has been waited for that the queue was given.
  void queue_has_passed() {
    for (const Mark& m : marks_) events_.give(m.event);
    marks_.clear();
    passed_ = marked_;
  }

 private:
  using Event = typename Events::Event;
  struct Mark {
    int64_t number;
    Event event;
  };

  bool first_has_passed() {
    const Mark first = marks_.front();
    if (!events_->passed(first.event)) return false;
    passed_ = first.number;
    events_.give(first.event);
    marks_.pop_front();
    return true;
  }

  EventPool<Events> events_;
  std::deque<Mark> marks_;  // not passed when last looked at, oldest first
  int64_t marked_ = 0, passed_ = 0;
};

}  // namespace weft::gpu
