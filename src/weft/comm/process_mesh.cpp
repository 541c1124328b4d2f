#include "weft/comm/process_mesh.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
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
  bool is_dry() const override { return size_ > 1; }
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
  const bool shares =
      g.axis == "shards" || g.axis == "replicas" || g.axis == "frozen_shards" || g.axis == "frozen_replicas";
  const bool is_all = shares && g.size == n.dp * n.cp;
  return is_all ? (n.cp == 1 ? "dp" : "dp_cp") : g.axis == "pp_gradients" ? "pp" : g.axis;
}

// An axis that ranks are numbered along; ep is none.
struct Numbered {
  int size;
  int MeshPlace::*at;
};
std::vector<Numbered> numbered(const MeshSizes& n) {
  std::vector<Numbered> axes;
  for (const Axis axis : n.order) {
    if (axis == Axis::tp) axes.push_back({n.tp, &MeshPlace::tp});
    if (axis == Axis::cp) axes.push_back({n.cp, &MeshPlace::cp});
    if (axis == Axis::dp) axes.push_back({n.dp, &MeshPlace::dp});
    if (axis == Axis::pp) axes.push_back({n.pp, &MeshPlace::pp});
  }
  return axes;
}

bool stands_before(const MeshOrder& order, Axis a, Axis b) {
  return std::find(order.begin(), order.end(), a) < std::find(order.begin(), order.end(), b);
}

// Data ranks are numbered along dp x cp, in the order of these axes; experts see them as (ep, edp).
int data_rank(const MeshSizes& n, const MeshPlace& at) {
  return stands_before(n.order, Axis::cp, Axis::dp) ? at.dp * n.cp + at.cp : at.cp * n.dp + at.dp;
}
struct ExpertPlace {
  int ep, edp;
};
ExpertPlace expert_place(const MeshSizes& n, int data_rank) {
  if (stands_before(n.order, Axis::ep, Axis::dp)) return {.ep = data_rank % n.ep, .edp = data_rank / n.ep};
  return {.ep = data_rank / n.edp(), .edp = data_rank % n.edp()};
}
int data_rank(const MeshSizes& n, const ExpertPlace& at) {
  return stands_before(n.order, Axis::ep, Axis::dp) ? at.edp * n.ep + at.ep : at.ep * n.edp() + at.edp;
}

}  // namespace

std::optional<MeshOrder> mesh_order(std::string_view text) {
  MeshOrder order = {};
  std::string again;
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string_view name = text.substr(std::min(3 * i, text.size()), 2);
    const auto axis =
        std::find_if(kMeshOrder.begin(), kMeshOrder.end(), [&](Axis known) { return name_of(known) == name; });
    if (axis == kMeshOrder.end() || again.find(name) != std::string::npos) return {};
    order[i] = *axis;
    again += fmt::format("{}{}", i > 0 ? "-" : "", name);
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

MeshSizes MeshSizes::of_frozen() const {
  MeshSizes n = *this;
  if (frozen_ep > 0) n.ep = frozen_ep;
  if (frozen_shards > 0) n.shards = frozen_shards;
  return n;
}

MeshSizes MeshSizes::of_teacher() const {
  if (!teacher) return *this;
  const auto [of_pp, of_cp, of_tp, of_ep] = *teacher;
  const int cut = of_pp * of_cp * of_tp;
  WEFT_CHECK(world() % cut == 0, "a teacher over pp {} x cp {} x tp {}, of {} ranks", of_pp, of_cp, of_tp, world());
  return {.dp = world() / cut, .pp = of_pp, .cp = of_cp, .tp = of_tp, .ep = of_ep, .order = order};
}

int MeshSizes::shards_of(ReplicaSet set) const { return set == ReplicaSet::dense ? shards : std::gcd(shards, edp()); }

int member_at(const MeshSizes& n, const MeshPlace& place, ReplicaSet set) {
  const int rank = data_rank(n, place);
  return set == ReplicaSet::dense ? rank : expert_place(n, rank).edp;
}

MeshPlace place_of_member(const MeshSizes& n, const MeshPlace& place, ReplicaSet set, int member) {
  const int rank = set == ReplicaSet::dense
                       ? member
                       : data_rank(n, ExpertPlace{.ep = expert_place(n, data_rank(n, place)).ep, .edp = member});
  MeshPlace there = place;
  const bool cp_inner = stands_before(n.order, Axis::cp, Axis::dp);
  there.dp = cp_inner ? rank / n.cp : rank % n.dp;
  there.cp = cp_inner ? rank % n.cp : rank / n.dp;
  return there;
}

std::function<void()> ProcessMesh::poller() const {
  if (progress == nullptr) return {};
  return [progress = progress] { progress->poll(); };
}

ProcessMesh ProcessMesh::of_frozen() const {
  ProcessMesh mesh = *this;
  mesh.sizes = sizes.of_frozen();
  mesh.dense = frozen.dense;
  mesh.experts = frozen.experts;
  mesh.axes[size_t(Axis::ep)] = frozen.ep;
  mesh.axes[size_t(Axis::edp)] = frozen.experts.all;
  return mesh;
}

ProcessMesh ProcessMesh::of_teacher() const {
  if (teacher == nullptr) return *this;
  ProcessMesh mesh = *teacher;
  mesh.progress = progress;
  return mesh;
}

void ProcessMesh::each(const std::function<void(std::shared_ptr<Communicator>&, const std::string&)>& f) {
  std::map<std::shared_ptr<Communicator>, std::shared_ptr<Communicator>> replaced;
  const auto replace = [&](std::shared_ptr<Communicator>& ranks, const std::string& name) {
    const auto [known, is_new] = replaced.try_emplace(ranks, ranks);
    if (is_new) f(known->second, name);
    ranks = known->second;
  };
  for (size_t a = 0; a < kAxes; ++a) replace(axes[a], std::string(name_of(Axis(a))));
  replace(dense.all, "dp_cp");
  replace(dense.shards, "shards");
  replace(dense.replicas, "replicas");
  replace(experts.all, "edp");
  replace(experts.shards, "expert_shards");
  replace(experts.replicas, "expert_replicas");
  replace(frozen.ep, "frozen_ep");
  replace(frozen.dense.all, "dp_cp");
  replace(frozen.dense.shards, "frozen_shards");
  replace(frozen.dense.replicas, "frozen_replicas");
  replace(frozen.experts.all, "frozen_edp");
  replace(frozen.experts.shards, "frozen_expert_shards");
  replace(frozen.experts.replicas, "frozen_expert_replicas");
  replace(pp, "pp");
  replace(pp_gradients, "pp");
  replace(world, "world");
  if (teacher == nullptr) return;
  ProcessMesh own = *teacher;  // other copies of this mesh keep theirs
  own.each([&](std::shared_ptr<Communicator>& ranks, const std::string& name) {
    replace(ranks, name == "world" ? name : "teacher_" + name);
  });
  teacher = std::make_shared<const ProcessMesh>(std::move(own));
}

ProcessMesh dry_mesh(const MeshSizes& sizes, int rank, Traffic* traffic) {
  return make_mesh(sizes, rank, [&](const MeshGroup& g) {
    return std::make_shared<DryCommunicator>(g.size, g.rank, DryCommunicator::Counts{traffic_axis(sizes, g), traffic});
  });
}

namespace {

// One of so many ranks.
struct Seat {
  int size, rank;
};
using JoinDataRanks =
    std::function<std::shared_ptr<Communicator>(const std::string& axis, Seat mine, const std::string& others)>;

// `all`: the data ranks.
DataRanks data_ranks(const MeshSizes& n, const MeshPlace& place, const std::shared_ptr<Communicator>& all,
                     const JoinDataRanks& join) {
  const auto [ep, edp] = expert_place(n, data_rank(n, place));
  // In two steps, where shards are next to each other.
  const auto add_steps = [&](ReplicaRanks& ranks, ReplicaSet set, const std::string& prefix,
                             const std::string& others) {
    const int shards = n.shards_of(set), member = member_at(n, place, set);
    ranks.shards =
        join(prefix + "shards", {shards, member % shards}, fmt::format("replica {}{}", member / shards, others));
    ranks.replicas = join(prefix + "replicas", {n.replicas(set) / shards, member / shards},
                          fmt::format("shard {}{}", member % shards, others));
  };
  DataRanks ranks;
  ranks.dense.all = all;
  add_steps(ranks.dense, ReplicaSet::dense, "", "");
  ranks.ep = join("ep", {n.ep, ep}, fmt::format("edp {}", edp));
  ranks.experts = ranks.dense;
  if (n.ep > 1) {
    ranks.experts.all = join("edp", {n.edp(), edp}, fmt::format("ep {}", ep));
    add_steps(ranks.experts, ReplicaSet::experts, "expert_", fmt::format(" ep {}", ep));
  }
  return ranks;
}

bool divides_data_ranks(const MeshSizes& n) { return n.dp * n.cp % n.shards == 0 && n.dp * n.cp % n.ep == 0; }

}  // namespace

namespace {

using Join = std::function<std::shared_ptr<Communicator>(const MeshGroup&)>;

// Its axes have names of their own, but that of all ranks.
std::shared_ptr<const ProcessMesh> mesh_of_teacher(const MeshSizes& n, int rank,
                                                   const std::shared_ptr<Communicator>& world, const Join& join) {
  return std::make_shared<const ProcessMesh>(
      make_mesh(n.of_teacher(), rank, [&](const MeshGroup& g) -> std::shared_ptr<Communicator> {
        if (g.axis == "world") return world;
        return join({"teacher_" + g.axis, "teacher's " + g.name, g.size, g.rank});
      }));
}

}  // namespace

ProcessMesh make_mesh(const MeshSizes& n, int rank,
                      const std::function<std::shared_ptr<Communicator>(const MeshGroup&)>& join) {
  const MeshSizes frozen = n.of_frozen();
  WEFT_CHECK(divides_data_ranks(n) && divides_data_ranks(frozen),
             "{} shards, ep {}, of frozen models {} and {}, of dp {} x cp {}", n.shards, n.ep, frozen.shards, frozen.ep,
             n.dp, n.cp);
  const MeshPlace place = place_of(n, rank);
  const auto [dp, pp, cp, tp] = place;
  const auto group = [&](const std::string& axis, Seat mine, const std::string& others) {
    return join({axis, fmt::format("{} of {}", axis, others), mine.size, mine.rank});
  };
  const std::string others_of_data = fmt::format("tp {} pp {}", tp, pp);
  const auto data_group = [&](const std::string& axis, Seat mine, const std::string& others) {
    return group(axis, mine, fmt::format("{} {}", others, others_of_data));
  };
  const std::string other_stages = fmt::format("dp {} cp {} tp {}", dp, cp, tp);
  ProcessMesh mesh;
  mesh.sizes = n;
  auto& axes = mesh.axes;
  axes[size_t(Axis::dp)] = data_group("dp", {n.dp, dp}, fmt::format("cp {}", cp));
  axes[size_t(Axis::cp)] = data_group("cp", {n.cp, cp}, fmt::format("dp {}", dp));
  axes[size_t(Axis::tp)] = group("tp", {n.tp, tp}, fmt::format("dp {} cp {} pp {}", dp, cp, pp));
  const std::shared_ptr<Communicator> all =
      n.cp == 1 ? axes[size_t(Axis::dp)] : group("dp_cp", {n.dp * n.cp, data_rank(n, place)}, others_of_data);
  const DataRanks trained = data_ranks(n, place, all, data_group);
  mesh.frozen = frozen.shards == n.shards && frozen.ep == n.ep
                    ? trained
                    : data_ranks(frozen, place, all, [&](const std::string& axis, Seat mine, const std::string& of) {
                        return data_group("frozen_" + axis, mine, of);
                      });
  mesh.dense = trained.dense;
  mesh.experts = trained.experts;
  axes[size_t(Axis::ep)] = trained.ep;
  axes[size_t(Axis::edp)] = mesh.experts.all;
  mesh.pp = group("pp", {n.pp, pp}, other_stages);
  mesh.pp_gradients = group("pp_gradients", {n.pp, pp}, other_stages);
  mesh.world = group("world", {n.world(), rank}, "all");
  if (n.teacher) mesh.teacher = mesh_of_teacher(n, rank, mesh.world, join);
  return mesh;
}

ProcessMesh single_mesh() { return dry_mesh({}); }

MeshGroups groups_of(const MeshSizes& sizes) {
  MeshGroups all;
  std::map<std::string, std::vector<int>> members;      // of a group, by its name
  std::vector<std::vector<std::string>> names_by_axis;  // of its groups, as ranks come
  for (int rank = 0; rank < sizes.world(); ++rank) {
    std::map<const Communicator*, MeshGroup> joined;
    ProcessMesh mesh = make_mesh(sizes, rank, [&](const MeshGroup& g) {
      const auto ranks = std::make_shared<DryCommunicator>(g.size, g.rank, DryCommunicator::Counts{});
      joined.emplace(ranks.get(), g);
      std::vector<int>& group = members[g.name];
      group.resize(size_t(g.size));
      group[size_t(g.rank)] = rank;
      return ranks;
    });
    size_t axis = 0;
    mesh.each([&](std::shared_ptr<Communicator>& ranks, const std::string&) {
      const MeshGroup& g = joined.at(ranks.get());
      if (axis == all.axes.size()) all.axes.push_back({.name = traffic_axis(sizes, g)}), names_by_axis.emplace_back();
      std::vector<std::string>& names = names_by_axis[axis++];
      if (std::find(names.begin(), names.end(), g.name) == names.end()) names.push_back(g.name);
    });
  }
  for (size_t a = 0; a < all.axes.size(); ++a)
    for (const std::string& name : names_by_axis[a]) all.axes[a].groups.push_back(members.at(name));
  return all;
}

}  // namespace weft
