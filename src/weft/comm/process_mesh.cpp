#include "weft/comm/process_mesh.h"

#include <cstring>

namespace weft {
namespace {

// One of `size` ranks among which nothing is moved; of one rank, every collective is the identity.
class DryCommunicator final : public Communicator {
 public:
  DryCommunicator(int size, int rank) : size_(size), rank_(rank) {}
  int size() const override { return size_; }
  int rank() const override { return rank_; }
  Work all_reduce(Tensor, Site) override { return {}; }
  Work all_gather(Tensor shard, Tensor full, Site) override { return copy_own(shard, full); }
  Work reduce_scatter(Tensor full, Tensor shard, Site) override { return copy_own(full, shard); }
  Work send(Tensor, int to, Site) override { return point_to_point(to); }
  Work recv(Tensor, int from, Site) override { return point_to_point(from); }

 private:
  Work copy_own(const Tensor& from, const Tensor& to) const {
    if (size_ == 1 && to.data != nullptr && to.data != from.data) std::memcpy(to.data, from.data, size_t(to.bytes()));
    return {};
  }
  Work point_to_point(int peer) const {
    WEFT_CHECK(peer >= 0 && peer < size_ && peer != rank_, "rank {} of {} sends to or receives from rank {}", rank_,
               size_, peer);
    return {};
  }
  int size_, rank_;
};

}  // namespace

MeshPlace place_of(const MeshSizes& n, int rank) {
  WEFT_CHECK(rank >= 0 && rank < n.world(), "rank {} of {}", rank, n.world());
  return {.dp = rank / (n.tp * n.cp) % n.dp,
          .pp = rank / (n.tp * n.cp * n.dp),
          .cp = rank / n.tp % n.cp,
          .tp = rank % n.tp};
}

int rank_at(const MeshSizes& n, const MeshPlace& at) { return ((at.pp * n.dp + at.dp) * n.cp + at.cp) * n.tp + at.tp; }

ProcessMesh dry_mesh(const MeshSizes& sizes, int rank) {
  return make_mesh(sizes, rank, [](const MeshGroup& g) { return std::make_shared<DryCommunicator>(g.size, g.rank); });
}

ProcessMesh make_mesh(const MeshSizes& n, int rank,
                      const std::function<std::shared_ptr<Communicator>(const MeshGroup&)>& join) {
  WEFT_CHECK(n.dp % n.shards == 0 && n.dp * n.cp % n.ep == 0, "{} shards of dp {}, ep {} of dp {} x cp {}", n.shards,
             n.dp, n.ep, n.dp, n.cp);
  const auto [dp, pp, cp, tp] = place_of(n, rank);
  const int data = dp * n.cp + cp, ep = data % n.ep, edp = data / n.ep, shard = dp % n.shards, replica = dp / n.shards;
  const auto group = [&](const char* axis, int size, int mine, const std::string& others) {
    return join({fmt::format("{} of {} tp {} pp {}", axis, others, tp, pp), size, mine});
  };
  ProcessMesh mesh;
  mesh.axes = {group("dp", n.dp, dp, fmt::format("cp {}", cp)), group("cp", n.cp, cp, fmt::format("dp {}", dp)),
               join({fmt::format("tp of dp {} cp {} pp {}", dp, cp, pp), n.tp, tp}),
               group("edp", n.edp(), edp, fmt::format("ep {}", ep)), group("ep", n.ep, ep, fmt::format("edp {}", edp))};
  mesh.pp = join({fmt::format("pp of dp {} cp {} tp {}", dp, cp, tp), n.pp, pp});
  mesh.pp_gradients = join({fmt::format("pp_gradients of dp {} cp {} tp {}", dp, cp, tp), n.pp, pp});
  mesh.world = join({"world", n.world(), rank});
  mesh.shards = group("shards", n.shards, shard, fmt::format("replica {} cp {}", replica, cp));
  mesh.replicas = group("replicas", n.replicas(), replica, fmt::format("shard {} cp {}", shard, cp));
  return mesh;
}

ProcessMesh single_mesh() { return dry_mesh({}); }

}  // namespace weft
