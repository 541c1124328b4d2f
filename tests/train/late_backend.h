// A fake asynchronous device for tests: ops run only at `wait_all`, or when another queue waits for them, and ops that
// repeat are recorded, as with CUDA graphs. Code that touches a tensor on the host without waiting gets other numbers
// than with a synchronous backend.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/thread_queue.h"
#include "guarded_memory.h"
#include "weft/ops/kept_op.h"
#include "weft/ops/replayed.h"
#include "weft/train/machine.h"

namespace weft::testing {

class LateBackend final : public RecordingBackend, private IssuedOps {
  using Waiting = std::vector<std::function<void()>>;
  struct Kept final : Record {
    explicit Kept(Waiting ops) : ops(std::move(ops)) {}
    Waiting ops;
  };

 public:
  // Its ops may touch the memory of this guard.
  explicit LateBackend(std::unique_ptr<Backend> inner, std::shared_ptr<Guard> guard = Guard::of_process())
      : inner_(std::move(inner)), queue_(true, [guard = std::move(guard)](const auto& ops) {
          const Opened opened(*guard);
          ops();
        }) {}
  ~LateBackend() override { queue_.end(); }  // what was not waited for does not run
  void run(const AnyOp& op) override {
    give([this, kept = KeptOp(op)] { kept.run(*inner_); });
  }

  void wait_all() override {
    ++num_waits_;
    if (before_wait_) before_wait_();
    queue_.wait_all();
    inner_->wait_all();
  }
  IssuedOps* issued() override { return this; }
  int64_t num_waits() const { return num_waits_; }
  size_t num_untaken() const { return times_.size(); }

  static inline std::atomic<int64_t> num_replays{0};  // of all there are
  Recorded record(const std::function<void()>& give) override {
    kept_.emplace();
    give();
    return {std::make_unique<Kept>(*std::exchange(kept_, {})), ""};
  }
  void replay(Record& record) override {
    for (const auto& op : static_cast<Kept&>(record).ops) queue_.give(op);
    ++num_replays;
  }

 private:
  DeviceQueue* issue_all() override { return &queue_; }
  void call_before_waits(std::function<void()> call) override { before_wait_ = std::move(call); }
  Stamp stamp() override {
    const auto mine = Stamp(++num_stamps_);
    give([this, mine] {
      times_[mine] = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    });
    return mine;
  }
  int64_t take_time_ns(Stamp stamp) override {
    const auto taken = times_.extract(stamp);
    WEFT_CHECK(!taken.empty(), "stamp {} was not waited for, or taken before", int64_t(stamp));
    return taken.mapped();
  }
  void give(std::function<void()> op) {
    if (kept_)
      kept_->push_back(std::move(op));
    else
      queue_.give(std::move(op));
  }

  std::unique_ptr<Backend> inner_;
  int64_t num_stamps_ = 0, num_waits_ = 0;
  std::map<Stamp, int64_t> times_;  // of stamps that were waited for
  std::function<void()> before_wait_;
  std::optional<Waiting> kept_;  // where it records
  ThreadQueue queue_;
};

inline Machine late_behind(std::shared_ptr<Guard> guard, Machine machine) {
  machine.late = true;
  machine.make_backend = [make = machine.make_backend, guard = std::move(guard)](Arena& workspace) {
    return std::make_unique<Replayed>(std::make_unique<LateBackend>(make(workspace), guard),
                                      [](const std::string& why) { FAIL() << "it can record: " << why; });
  };
  return machine;
}

inline Machine late(Machine machine) { return late_behind(Guard::of_process(), std::move(machine)); }

// The same with memory of its own: who touches a tensor on the host, crashes. Each of its ops takes longer.
inline Machine apart(Machine machine) {
  machine.memory = std::make_shared<GuardedMemory>();
  machine.mover = std::make_shared<GuardedMover>();
  return late(std::move(machine));
}

}  // namespace weft::testing
