// Communicators for tensors in GPU memory, one GPU per rank; other tensors go by the host's communicator.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/rank_watch.h"
#include "weft/device/fabric.h"
#include "weft/tensor/tensor.h"

namespace weft {

// State that a rank's communicators over its device's fabric share: how they wait, and how they fail.

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
  void order_by(std::function<DeviceQueue*()> issue) { issue_ = std::move(issue); }
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
  std::function<DeviceQueue*()> issue_;  // none: calls are not ordered
  std::function<void()> settled_;        // none: calls are not stamped
  std::string failure_;                  // empty: none
};

// What a rank has of one axis.
struct FabricLanes {
  std::shared_ptr<Lane> group;                // of collectives; none: collectives go by the host
  std::map<int, std::shared_ptr<Lane>> to;    // for messages to these ranks; others go by the host
  std::map<int, std::shared_ptr<Lane>> from;  // and from these
};

// As Communicator, with the same bits as the host's. All tensors of a call, on all its ranks, lie in device memory that
// the host cannot reach, or all lie elsewhere. Empty ones go by the host.
//
// A call is ordered if the mesh is (CommProgress::order_by). Otherwise it begins on the device at once, and its caller
// must first have waited for what it reads (comm/through_host.h). The host's communicator of the axis compares the
// ranks' calls meanwhile: it finds disagreement, deadlock and lost ranks as it does for its own calls, and the device
// then aborts. Axes with the same ranks are called in the same order on all of them.
class FabricCommunicator final : public Communicator {
 public:
  FabricCommunicator(std::shared_ptr<FabricHub> hub, std::shared_ptr<Communicator> host, FabricLanes lanes)
      : hub_(std::move(hub)), host_(std::move(host)), lanes_(std::move(lanes)) {}
  int size() const override { return host_->size(); }
  int rank() const override { return host_->rank(); }
  bool is_ordered(const Tensor& x, int peer) const override;
  Work all_reduce(Tensor x, Site site) override;
  Work all_gather(Tensor shard, Tensor full, Site site) override;
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override;
  Work send(Tensor x, int to, Site site) override;
  Work recv(Tensor x, int from, Site site) override;

 private:
  class Begun;
  bool is_on_device(const Tensor& x) const;
  bool goes_by_group(const Tensor& x, const Tensor& y) const;
  // Issues on the lane what `give` gives it.
  template <class Give>
  Work begin(Lane& lane, const CommCall& call, const Give& give);
  CommCall call(const char* op, const Tensor& x, const Site& site, int peer = -1);

  std::shared_ptr<FabricHub> hub_;
  std::shared_ptr<Communicator> host_;
  FabricLanes lanes_;
  int64_t collectives_ = 0, messages_ = 0;
};

}  // namespace weft
