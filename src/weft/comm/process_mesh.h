// The ranks as a grid with named axes.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/traffic.h"
#include "weft/device/device_queue.h"

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

// The sizes of a layout; `ep` cuts experts over ranks of dp x cp, ZeRO's `shards` divide dp x cp. Models that are
// frozen beside the trained one may have others of both; 0: the same. A teacher may have all axes but dp of its own,
// and so many data ranks as are left.
struct TeacherAxes {
  int pp = 1, cp = 1, tp = 1, ep = 1;
};
struct MeshSizes {
  int dp = 1, pp = 1, cp = 1, tp = 1, ep = 1, shards = 1, frozen_ep = 0, frozen_shards = 0;
  MeshOrder order = kMeshOrder;
  std::optional<TeacherAxes> teacher = {};  // none: it lies as the other frozen models do
  MeshSizes of_frozen() const;              // as those models have them
  MeshSizes of_teacher() const;             // as a teacher with axes of its own has them; without: as they are
  int edp() const { return dp * cp / ep; }
  int replicas(ReplicaSet set) const { return set == ReplicaSet::dense ? dp * cp : edp(); }
  int shards_of(ReplicaSet set) const;  // of experts: the greatest common divisor of `shards` and edp
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
// The number of the rank at `place` among those that hold the same weights of a set; and the place of the `member`th.
int member_at(const MeshSizes& sizes, const MeshPlace& place, ReplicaSet set);
MeshPlace place_of_member(const MeshSizes& sizes, const MeshPlace& place, ReplicaSet set, int member);

// The ranks that hold the weights of a set alike, all of them and in two steps: `shards`, over which ZeRO shards them
// (next to each other in `all`), and `replicas`, which hold the same shard.
struct ReplicaRanks {
  std::shared_ptr<Communicator> all, shards, replicas;
};

// How the data ranks (dp x cp) share the weights of a model among them.
struct DataRanks {
  std::shared_ptr<Communicator> ep;
  ReplicaRanks dense, experts;
};

// Makes progress on a rank's communication while the rank computes. Belongs to a mesh, whose copies share it; only the
// thread of its rank calls it.
class CommProgress {
 public:
  virtual ~CommProgress() = default;
  // Goes on as far as it can, without waiting. To be called often by a rank that computes. Throws CommError.
  virtual void poll() = 0;
  // If it lends: after `lend`, a thread of the mesh makes the progress, until the next `poll`. Between the two the rank
  // may call only `settle`.
  virtual bool lends() const { return false; }
  virtual void lend() {}

  // Whether devices move tensors themselves, in queue order. If not, the functions below do nothing.
  virtual bool is_by_devices() const { return false; }
  // Orders later calls (Communicator::is_ordered) with the queue that `issue` returns; `issue` first gives the device
  // the ops that are held.
  virtual void order_by(std::function<DeviceQueue*()> /*issue*/) {}
  // Returns when all calls that were waited for have finished here. Call it before waiting for a device: if another
  // rank failed, the device would wait for ever (IssuedOps::call_before_waits). Throws CommError.
  virtual void settle() {}
  // Makes devices record when they ran each later call (Work::Pending::take_span). `settled` is called after each
  // `settle`, when the times of these calls are known.
  virtual void stamp_calls(std::function<void()> /*settled*/) {}
  // Aborts this rank's communication; the mesh is dead then. A rank that fails calls it before it frees memory that
  // peers or devices still use.
  virtual void give_up() {}
};

// A communicator for each axis of placements, for the ranks of each replica set, and for the pipeline. Shared: a mesh
// is a value that names them, and axes that are the same ranks have the same one (dp and all of the dense set, without
// cp).
struct ProcessMesh {
  std::array<std::shared_ptr<Communicator>, kAxes> axes;
  ReplicaRanks dense, experts;
  DataRanks frozen;  // of frozen models: the same where MeshSizes says so
  // Gradients go through the pipeline on a communicator of their own: two ranks may be neighbours in both directions.
  std::shared_ptr<Communicator> pp, pp_gradients, world;
  MeshSizes sizes = {};
  std::shared_ptr<CommProgress> progress = {};      // none where nothing is ever under way
  std::shared_ptr<const ProcessMesh> teacher = {};  // of a teacher with axes of its own
  std::function<void()> poller() const;             // of its `poll`; none where there is none
  ProcessMesh of_frozen() const;                    // as frozen models see it
  ProcessMesh of_teacher() const;                   // as a teacher with axes of its own sees it; without: as it is
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

// Which ranks talk to each other, by the communicators of a mesh of these sizes, in the order of ProcessMesh::each.
struct MeshGroups {
  struct Axis {
    std::string name;                           // as traffic is counted (dry_mesh); several may have the same
    std::vector<std::vector<int>> groups = {};  // world ranks, by their ranks in the group
  };
  std::vector<Axis> axes;
};
MeshGroups groups_of(const MeshSizes& sizes);

}  // namespace weft
