// A backend around a backend that polls the mesh after each op, and, if asked, lends it before (ProcessMesh): this
// rank's communication makes progress while it computes.
#pragma once
#include <functional>

#include "weft/ops/backend.h"

namespace weft {

// The inner backend is borrowed.
class Polled final : public UniformBackend<Polled> {
 public:
  using Call = std::function<void()>;
  // `lend` may be none.
  Polled(Backend& inner, Call lend, Call poll) : inner_(inner), lend_(std::move(lend)), poll_(std::move(poll)) {}

  template <class Op>
  void apply(const Op& op) {
    const bool lends = lend_ && !inner_.is_holding();
    if (lends) lend_();
    try {
      inner_.run(op);
    } catch (...) {
      end_failed();
      throw;
    }
    // Polling may take long, so not while the device is idle; but it must take back what was lent.
    if (lends || !inner_.is_holding()) poll_();
  }
  void enter(std::string_view region) override { inner_.enter(region); }
  void leave() override { inner_.leave(); }
  void wait_all() override { inner_.wait_all(); }
  Stream* issue_all() override { return inner_.issue_all(); }
  bool is_holding() const override { return inner_.is_holding(); }
  Stamp stamp() override { return inner_.stamp(); }
  int64_t take_time_ns(Stamp stamp) override { return inner_.take_time_ns(stamp); }

 private:
  // Rethrow the op's error; drop the poll's.
  void end_failed() const {
    try {
      poll_();
    } catch (const std::exception&) {}
  }

  Backend& inner_;
  Call lend_, poll_;
};

}  // namespace weft
