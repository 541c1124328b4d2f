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
  Work all_reduce(Tensor) override { return {}; }
  Work all_gather(Tensor shard, Tensor full) override { return copy_own(shard, full); }
  Work reduce_scatter(Tensor full, Tensor shard) override { return copy_own(full, shard); }
  Work send(Tensor, int to) override { return point_to_point(to); }
  Work recv(Tensor, int from) override { return point_to_point(from); }

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
  return {{dry(n.dp), dry(n.cp), dry(n.tp), dry(n.edp()), dry(n.ep)}, dry(n.pp)};
}

ProcessMesh single_mesh() { return dry_mesh({}); }

}  // namespace weft
