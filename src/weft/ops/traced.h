// A backend around a backend that records what ran when.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/ops/backend.h"

namespace weft {

struct TraceEvent {
  std::string region;  // the innermost, "" outside of all
  std::string_view op;
  int64_t start_ns = 0, end_ns = 0;
};

// Waits for each op, so that its time is its own: for finding out, not for training.
class Traced final : public UniformBackend<Traced> {
 public:
  using Clock = std::function<int64_t()>;  // nanoseconds
  Traced(Backend& inner, Clock clock) : inner_(inner), clock_(std::move(clock)) {}

  template <class Op>
  void apply(const Op& op) {
    inner_.wait_all();
    const int64_t start = clock_();
    inner_.run(op);
    inner_.wait_all();
    events_.push_back({regions_.empty() ? "" : regions_.back(), Op::kName, start, clock_()});
    if constexpr (std::is_same_v<Op, Matmul>) products_.push_back(op);
  }
  void enter(std::string_view region) override {
    regions_.emplace_back(region);
    inner_.enter(region);
  }
  void leave() override {
    regions_.pop_back();
    inner_.leave();
  }
  void wait_all() override { inner_.wait_all(); }

  const std::vector<TraceEvent>& events() const { return events_; }
  const std::vector<Matmul>& products() const { return products_; }  // every matrix product that ran
  void clear() { events_.clear(), products_.clear(); }

 private:
  Backend& inner_;
  Clock clock_;
  std::vector<std::string> regions_;
  std::vector<TraceEvent> events_;
  std::vector<Matmul> products_;
};

// The events as a Chrome trace (JSON), which Perfetto and chrome://tracing show.
std::string to_chrome_trace(const std::vector<TraceEvent>& events);

}  // namespace weft
