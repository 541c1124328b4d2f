// Reuses events of a GPU's queue once nothing looks at them any more.
#pragma once
#include <utility>
#include <vector>

namespace weft::gpu {

// Events: what the queue has of them, with `using Event`, `make` and `end` (marked_queue.h, queue_times.h). What was
// taken is to be given back before the end.
template <class Events>
class EventPool {
 public:
  using Event = typename Events::Event;
  explicit EventPool(Events events) : events_(std::move(events)) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool() {
    for (const Event event : free_) events_.end(event);
  }
  Events* operator->() { return &events_; }

  Event take() {
    if (free_.empty()) return events_.make();
    const Event event = free_.back();
    free_.pop_back();
    return event;
  }
  void give(Event event) { free_.push_back(event); }

 private:
  Events events_;
  std::vector<Event> free_;
};

}  // namespace weft::gpu
