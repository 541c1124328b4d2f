// A backend around a backend that polls the mesh after each op, and, if asked, lends it before (CommProgress): this
// rank's communication makes progress while it computes.
#pragma once
#include <functional>

#include "weft/ops/backend_around.h"

namespace weft {

// The inner backend is borrowed.
class Polled final : public UniformAround<Polled> {
 public:
  using Call = std::function<void()>;
  // `lend` may be none.
  Polled(Backend& inner, Call lend, Call poll)
      : UniformAround<Polled>(inner), lend_(std::move(lend)), poll_(std::move(poll)) {}

  template <class Op>
  void apply(const Op& op) {
    const bool lends = lend_ && !is_holding();
    if (lends) lend_();
    try {
      inner_.run(op);
    } catch (...) {
      end_failed();
      throw;
    }
    // Polling may take long, so not while the device is idle; but it must take back what was lent.
    if (lends || !is_holding()) poll_();
  }

 private:
  bool is_holding() {
    const DeviceQueue* const queue = inner_.queue();
    return queue != nullptr && queue->is_holding();
  }
  // Rethrow the op's error; drop the poll's.
  void end_failed() const {
    try {
      poll_();
    } catch (const std::exception&) {}
  }

  Call lend_, poll_;
};

}  // namespace weft
