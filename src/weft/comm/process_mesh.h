// The ranks as a grid with named axes.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "weft/comm/communicator.h"
#include "weft/comm/traffic.h"
#include "weft/device/stream.h"

namespace weft {

// In which order ranks are numbered: ranks next to each other differ in the first axis, those farthest apart in the
// last (Megatron-LM's --order).
using MeshOrder = std::array<Axis, 5>;
inline constexpr MeshOrder kMeshOrder = {Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::pp};
// Reads "tp-cp-ep-dp-pp"; none unless each of these names stands there once.
std::optional<MeshOrder> mesh_order(std::string_view text);

// The weights of a set are held alike by the same ranks: dense weights by those of dp x cp, experts by those of edp.
enum class ReplicaSet : uint8_t { dense, experts };
inline constexpr ReplicaSet kReplicaSets[] = {ReplicaSet::dense, ReplicaSet::experts};

// The sizes of a layout; `ep` cuts experts over ranks of dp x cp, ZeRO's `shards` divide dp x cp.
struct MeshSizes {
  int dp = 1, pp = 1, cp = 1, tp = 1, ep = 1, shards = 1;
  MeshOrder order = kMeshOrder;
  int edp() const { return dp * cp / ep; }
  int replicas(ReplicaSet set) const { return set == ReplicaSet::dense ? dp * cp : edp(); }
  int shards_of(ReplicaSet set) const;  // of experts: as many of `shards` as divide edp
  int world() const { return dp * pp * cp * tp; }
};
// Where a rank stands, as the order of the axes says. ep has no ranks of its own, so its place in the order moves none:
// of the data ranks (dp x cp, in their order) ep is inner and edp outer where ep stands before dp, else the other way
// round.
struct MeshPlace {
  int dp, pp, cp, tp;
};
MeshPlace place_of(const MeshSizes& sizes, int rank);
int rank_at(const MeshSizes& sizes, const MeshPlace& place);
// Which of the ranks that hold a set's weights as the one at `place` does it is; and where the `member`th of them
// stands.
int member_at(const MeshSizes& sizes, const MeshPlace& place, ReplicaSet set);
MeshPlace place_of_member(const MeshSizes& sizes, const MeshPlace& place, ReplicaSet set, int member);

// The ranks that hold the weights of a set alike, all of them and in two steps: `shards`, over which ZeRO shards them
// (next to each other in `all`), and `replicas`, which hold the same shard.
struct ReplicaRanks {
  std::shared_ptr<Communicator> all, shards, replicas;
};

// Lets what a rank has under way go on beside what it computes. Belongs to a mesh, whose copies share it; for the
// thread of its rank.
class CommProgress {
 public:
  virtual ~CommProgress() = default;
  // Goes on as far as it can, without waiting. To be called often by a rank that computes. Throws CommError.
  virtual void poll() = 0;
  // Where it lends: from `lend` to the next `poll` this rank calls nothing of the mesh but `settle`, and a thread of
  // the mesh lets things go on.
  virtual bool lends() const { return false; }
  virtual void lend() {}

  // Whether devices move tensors themselves, behind what they were given; what follows does nothing where they do not.
  virtual bool is_by_devices() const { return false; }
  // From its call on, calls are ordered (Communicator::is_ordered) by the stream that `issue` returns, which gives the
  // device first what waits for others.
  virtual void order_by(std::function<Stream*()> /*issue*/) {}
  // Returns when all calls that were waited for have finished here. To be called before a device is waited for, which
  // would wait without end where another has failed (DeviceQueue::call_before_waits). Throws CommError.
  virtual void settle() {}
  // From its call on, devices keep when they did each call (Work::Pending::take_span).
  virtual void stamp_calls() {}
  // Ends at once what this rank has under way; the mesh is dead then. For a rank that fails, before memory ends that
  // peers or devices still use.
  virtual void give_up() {}
};

// A communicator for each axis of placements, for the ranks of each replica set, and for the pipeline. Shared: a mesh
// is a value that names them, and axes that are the same ranks have the same one (dp and all of the dense set, without
// cp).
struct ProcessMesh {
  std::array<std::shared_ptr<Communicator>, kAxes> axes;
  ReplicaRanks dense, experts;
  // Gradients go through the pipeline on a communicator of their own: two ranks may be neighbours in both directions.
  std::shared_ptr<Communicator> pp, pp_gradients, world;
  MeshSizes sizes = {};
  std::shared_ptr<CommProgress> progress = {};  // none where nothing is ever under way
  std::function<void()> poller() const;         // of its `poll`; none where there is none
  Communicator& operator[](Axis axis) const { return axis == Axis::pp ? *pp : *axes[size_t(axis)]; }
  const ReplicaRanks& operator[](ReplicaSet set) const { return set == ReplicaSet::dense ? dense : experts; }
  // Calls f(communicator, to be replaced or not, its name) once for each that is not another's by two names.
  void each(const std::function<void(std::shared_ptr<Communicator>&, const std::string&)>& f);
};

// One axis as one rank sees it: the ranks that differ in nothing else share the name.
struct MeshGroup {
  std::string axis;  // "dp", "pp_gradients", ...
  std::string name;
  int size, rank;
};
// The mesh of world rank `rank`, whose communicators `join` makes.
ProcessMesh make_mesh(const MeshSizes& sizes, int rank,
                      const std::function<std::shared_ptr<Communicator>(const MeshGroup&)>& join);
// Every axis of size one.
ProcessMesh single_mesh();
// For a dry run as one rank of a mesh of these sizes: collectives move nothing, and are added to `traffic`, which must
// outlive them. There, `shards` or `replicas` are "dp" where they are all of it, and both directions of the pipeline
// "pp".
ProcessMesh dry_mesh(const MeshSizes& sizes, int rank = 0, Traffic* traffic = nullptr);

}  // namespace weft
