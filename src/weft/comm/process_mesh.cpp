#include "weft/comm/process_mesh.h"

#include <cstring>

namespace weft {
namespace {

// Rank 0 of `size` ranks of which nothing is moved; of one rank, every collective is the identity.
class DryCommunicator final : public Communicator {
 public:
  explicit DryCommunicator(int size) : size_(size) {}
  int size() const override { return size_; }
  int rank() const override { return 0; }
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
    WEFT_CHECK(peer >= 0 && peer < size_ && peer != 0, "rank 0 of {} sends to or receives from rank {}", size_, peer);
    return {};
  }
  int size_;
};

}  // namespace

ProcessMesh dry_mesh(const MeshSizes& n) {
  auto dry = [](int size) { return std::make_shared<DryCommunicator>(size); };
  return {{dry(n.dp), dry(n.cp), dry(n.tp), dry(n.edp()), dry(n.ep)}, dry(n.pp), dry(n.world())};
}

ProcessMesh make_mesh(const MeshSizes& n, int rank,
                      const std::function<std::shared_ptr<Communicator>(const MeshGroup&)>& join) {
  WEFT_CHECK(rank >= 0 && rank < n.world(), "rank {} of {}", rank, n.world());
  const int tp = rank % n.tp, cp = rank / n.tp % n.cp, dp = rank / (n.tp * n.cp) % n.dp,
            pp = rank / (n.tp * n.cp * n.dp);
  const int data = dp * n.cp + cp, ep = data % n.ep, edp = data / n.ep;
  const auto dense = [&](const char* axis, int size, int mine, int d, int c, int t, int p) {
    return join({fmt::format("{} of dp {} cp {} tp {} pp {}", axis, d, c, t, p), size, mine});
  };
  const auto expert = [&](const char* axis, int size, int mine, int d, int e) {
    return join({fmt::format("{} of edp {} ep {} tp {} pp {}", axis, d, e, tp, pp), size, mine});
  };
  return {{dense("dp", n.dp, dp, -1, cp, tp, pp), dense("cp", n.cp, cp, dp, -1, tp, pp),
           dense("tp", n.tp, tp, dp, cp, -1, pp), expert("edp", n.edp(), edp, -1, ep), expert("ep", n.ep, ep, edp, -1)},
          dense("pp", n.pp, pp, dp, cp, tp, -1),
          join({"world", n.world(), rank})};
}

ProcessMesh single_mesh() { return dry_mesh({}); }

}  // namespace weft
