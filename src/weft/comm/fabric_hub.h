// State that a rank's communicators over its device's fabric share: how they wait, and how they fail.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/comm/rank_watch.h"
#include "weft/device/fabric.h"

namespace weft {

// A transport and its queued calls; communicators of the same ranks share one.
struct Lane {
  struct Ordered {
    int64_t mark;
    CommCall call;
  };
  std::shared_ptr<Transport> transport;
  int64_t calls = 0;
  std::deque<Ordered> ordered = {};  // calls that only the device waits for, oldest first; some may be done
};

// For its rank's thread. Once a call has failed every other throws the same CommError.
class FabricHub {
 public:
  struct Patience {
    double timeout_s, told_s;  // FabricOfRank's
  };
  // `poll` (may be empty) makes progress on the host's calls, and throws if another rank has failed.
  FabricHub(std::shared_ptr<Fabric> fabric, std::function<void()> poll, Patience patience)
      : fabric_(std::move(fabric)), poll_(std::move(poll)), patience_(patience) {}

  Fabric& fabric() const { return *fabric_; }
  std::shared_ptr<Lane> connect(const Fabric::End& end);
  size_t num_lanes() const { return lanes_.size(); }
  void check_alive() const {
    if (!failure_.empty()) throw CommError(failure_);
  }
  // Waits until the transport has passed the mark. The other ranks of the call have begun it, or will.
  void wait(Transport& transport, int64_t mark, const CommCall& call);
  // CommProgress::order_by.
  void order_by(std::function<Stream*()> issue) { issue_ = std::move(issue); }
  bool orders() const { return issue_ != nullptr; }
  // If calls are ordered, the lane's next work waits for the work that the device was given; if not, the caller has
  // waited.
  void let_wait_for_device(Lane& lane);
  // As `wait`, but if calls are ordered, only the device waits.
  void wait_in_order(Lane& lane, int64_t mark, const CommCall& call);
  // CommProgress::stamp_calls.
  void stamp_calls(std::function<void()> settled);
  bool stamps_calls() const { return settled_ != nullptr; }
  // CommProgress::settle.
  void settle();
  // Ends at once all that is under way.
  void give_up(const std::string& why) noexcept;

 private:
  [[noreturn]] void fail_unless_told(const std::string& why);
  [[noreturn]] void fail(const std::string& why);

  std::shared_ptr<Fabric> fabric_;
  std::function<void()> poll_;
  Patience patience_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::function<Stream*()> issue_;  // none: calls are not ordered
  std::function<void()> settled_;   // none: calls are not stamped
  std::string failure_;             // empty: none
};

}  // namespace weft
