#include "weft/comm/process_mesh.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace weft {
namespace {

// One of `size` ranks among which nothing is moved; of one rank, every collective is the identity.
class DryCommunicator final : public Communicator {
 public:
  struct Counts {
    std::string axis;
    Traffic* traffic;  // or none
  };
  DryCommunicator(int size, int rank, Counts counts) : size_(size), rank_(rank), counts_(std::move(counts)) {}
  int size() const override { return size_; }
  int rank() const override { return rank_; }
  Work all_reduce(Tensor x, Site) override {
    count(Traffic::Kind::all_reduce, 2 * x.bytes() * (size_ - 1) / size_);
    return {};
  }
  Work all_gather(Tensor shard, Tensor full, Site) override {
    count(Traffic::Kind::all_gather, shard.bytes() * (size_ - 1));
    return copy_own(shard, full);
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site) override {
    count(Traffic::Kind::reduce_scatter, shard.bytes() * (size_ - 1));
    return copy_own(full, shard);
  }
  Work send(Tensor x, int to, Site) override {
    check_peer(to);
    count(Traffic::Kind::send, x.bytes());
    return {};
  }
  Work recv(Tensor, int from, Site) override {
    check_peer(from);
    return {};
  }

 private:
  void count(Traffic::Kind kind, int64_t bytes) {
    if (size_ == 1 || counts_.traffic == nullptr) return;
    Traffic::Count*& count = found_[size_t(kind)];  // a dry run may send millions
    if (count == nullptr) count = &counts_.traffic->count(counts_.axis, kind);
    ++count->calls;
    count->bytes += bytes;
  }
  Work copy_own(const Tensor& from, const Tensor& to) const {
    if (size_ == 1 && to.data != nullptr && to.data != from.data) std::memcpy(to.data, from.data, size_t(to.bytes()));
    return {};
  }
  void check_peer(int peer) const {
    WEFT_CHECK(peer >= 0 && peer < size_ && peer != rank_, "rank {} of {} sends to or receives from rank {}", rank_,
               size_, peer);
  }
  int size_, rank_;
  Counts counts_;
  std::array<Traffic::Count*, 4> found_ = {};
};

// What an axis is called where traffic is counted.
std::string traffic_axis(const MeshSizes& n, const MeshGroup& g) {
  const bool cuts_dp = g.axis == "shards" || g.axis == "replicas";
  return cuts_dp && g.size == n.dp ? "dp" : g.axis == "pp_gradients" ? "pp" : g.axis;
}

// An axis that ranks are numbered along; ep is none.
struct Numbered {
  int size;
  int MeshPlace::*at;
};
std::vector<Numbered> numbered(const MeshSizes& n) {
  std::vector<Numbered> axes;
  for (const MeshAxis axis : n.order) {
    if (axis == MeshAxis::tp) axes.push_back({n.tp, &MeshPlace::tp});
    if (axis == MeshAxis::cp) axes.push_back({n.cp, &MeshPlace::cp});
    if (axis == MeshAxis::dp) axes.push_back({n.dp, &MeshPlace::dp});
    if (axis == MeshAxis::pp) axes.push_back({n.pp, &MeshPlace::pp});
  }
  return axes;
}

bool stands_before(const MeshOrder& order, MeshAxis a, MeshAxis b) {
  return std::find(order.begin(), order.end(), a) < std::find(order.begin(), order.end(), b);
}

// Among the data ranks.
struct DataPlace {
  int ep, edp;
};
DataPlace data_place(const MeshSizes& n, const MeshPlace& at) {
  const int rank = stands_before(n.order, MeshAxis::cp, MeshAxis::dp) ? at.dp * n.cp + at.cp : at.cp * n.dp + at.dp;
  if (stands_before(n.order, MeshAxis::ep, MeshAxis::dp)) return {.ep = rank % n.ep, .edp = rank / n.ep};
  return {.ep = rank / n.edp(), .edp = rank % n.edp()};
}

}  // namespace

std::optional<MeshOrder> mesh_order(std::string_view text) {
  constexpr std::string_view kNames[] = {"tp", "cp", "ep", "dp", "pp"};
  MeshOrder order = {};
  std::string again;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto name = std::find(std::begin(kNames), std::end(kNames), text.substr(std::min(3 * i, text.size()), 2));
    if (name == std::end(kNames)) return {};
    order[i] = MeshAxis(name - std::begin(kNames));
    if (std::find(order.begin(), order.begin() + std::ptrdiff_t(i), order[i]) != order.begin() + std::ptrdiff_t(i))
      return {};
    again += fmt::format("{}{}", i > 0 ? "-" : "", *name);
  }
  if (again != text) return {};
  return order;
}

MeshPlace place_of(const MeshSizes& n, int rank) {
  WEFT_CHECK(rank >= 0 && rank < n.world(), "rank {} of {}", rank, n.world());
  MeshPlace place{};
  for (const auto& [size, at] : numbered(n)) {
    place.*at = rank % size;
    rank /= size;
  }
  return place;
}

int rank_at(const MeshSizes& n, const MeshPlace& place) {
  int rank = 0, stride = 1;
  for (const auto& [size, at] : numbered(n)) {
    rank += place.*at * stride;
    stride *= size;
  }
  return rank;
}

ProcessMesh dry_mesh(const MeshSizes& sizes, int rank, Traffic* traffic) {
  return make_mesh(sizes, rank, [&](const MeshGroup& g) {
    return std::make_shared<DryCommunicator>(g.size, g.rank, DryCommunicator::Counts{traffic_axis(sizes, g), traffic});
  });
}

ProcessMesh make_mesh(const MeshSizes& n, int rank,
                      const std::function<std::shared_ptr<Communicator>(const MeshGroup&)>& join) {
  WEFT_CHECK(n.dp % n.shards == 0 && n.dp * n.cp % n.ep == 0, "{} shards of dp {}, ep {} of dp {} x cp {}", n.shards,
             n.dp, n.ep, n.dp, n.cp);
  const auto [dp, pp, cp, tp] = place_of(n, rank);
  const auto [ep, edp] = data_place(n, {dp, pp, cp, tp});
  const int shard = dp % n.shards, replica = dp / n.shards;
  const auto group = [&](const char* axis, int size, int mine, const std::string& others) {
    return join({axis, fmt::format("{} of {}", axis, others), size, mine});
  };
  const std::string others_of_data = fmt::format("tp {} pp {}", tp, pp);
  const auto data_group = [&](const char* axis, int size, int mine, const std::string& others) {
    return group(axis, size, mine, fmt::format("{} {}", others, others_of_data));
  };
  const std::string other_stages = fmt::format("dp {} cp {} tp {}", dp, cp, tp);
  ProcessMesh mesh;
  mesh.sizes = n;
  mesh.axes = {data_group("dp", n.dp, dp, fmt::format("cp {}", cp)),
               data_group("cp", n.cp, cp, fmt::format("dp {}", dp)),
               group("tp", n.tp, tp, fmt::format("dp {} cp {} pp {}", dp, cp, pp)),
               data_group("edp", n.edp(), edp, fmt::format("ep {}", ep)),
               data_group("ep", n.ep, ep, fmt::format("edp {}", edp))};
  mesh.pp = group("pp", n.pp, pp, other_stages);
  mesh.pp_gradients = group("pp_gradients", n.pp, pp, other_stages);
  mesh.world = group("world", n.world(), rank, "all");
  mesh.shards = data_group("shards", n.shards, shard, fmt::format("replica {} cp {}", replica, cp));
  mesh.replicas = data_group("replicas", n.replicas(), replica, fmt::format("shard {} cp {}", shard, cp));
  return mesh;
}

ProcessMesh single_mesh() { return dry_mesh({}); }

}  // namespace weft
