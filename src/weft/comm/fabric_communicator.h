// Communicators of tensors that lie in memory of a GPU, each rank's its own; of all others, the host's.
#pragma once
#include <map>

#include "weft/comm/communicator.h"
#include "weft/comm/fabric_hub.h"

namespace weft {

// What a rank has of one axis.
struct FabricLanes {
  std::shared_ptr<Lane> group;                // of collectives; none: they go by the host
  std::map<int, std::shared_ptr<Lane>> to;    // of messages to these ranks; to others they go by the host
  std::map<int, std::shared_ptr<Lane>> from;  // and from these
};

// As Communicator, with the bits of the host's. Where a tensor lies must be alike on all ranks of a call: in the memory
// of the device alone, or anywhere else; both tensors of a call alike. An empty one goes by the host.
//
// A call is ordered where the mesh is (CommProgress::order_by); else it begins at once on the device, on what was
// computed before: its caller waits for that (comm/after.h). The
// host's communicator of the axis tells the ranks of each other's calls at the same time, so those that do not agree,
// wait for each other without end, or have lost a rank, learn of it as they do with the host's; the device ends then
// what it has under way. Calls of axes that have the same ranks come in the same order on all of them.
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
  // What `give` gives the lane.
  template <class Give>
  Work begin(Lane& lane, const CommCall& call, const Give& give);
  CommCall call(const char* op, const Tensor& x, const Site& site, int peer = -1);

  std::shared_ptr<FabricHub> hub_;
  std::shared_ptr<Communicator> host_;
  FabricLanes lanes_;
  int64_t collectives_ = 0, messages_ = 0;
};

}  // namespace weft
