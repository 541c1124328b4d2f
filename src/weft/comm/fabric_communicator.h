// Communicators for tensors in GPU memory, one GPU per rank; other tensors go by the host's communicator.
#pragma once
#include <map>

#include "weft/comm/communicator.h"
#include "weft/comm/fabric_hub.h"

namespace weft {

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
// must first have waited for what it reads (comm/after.h). The host's communicator of the axis compares the ranks'
// calls meanwhile: it finds disagreement, deadlock and lost ranks as it does for its own calls, and the device then
// aborts. Axes with the same ranks are called in the same order on all of them.
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
