#include "weft/comm/fabric_mesh.h"

#include <map>
#include <vector>

#include "weft/comm/agree.h"
#include "weft/comm/fabric_communicator.h"

namespace weft {
namespace {

constexpr int64_t kStaging = int64_t{64} << 20;  // bytes: of sums of a group, whatever their size
constexpr int64_t kGreeting = 64;                // bytes: the first that pass, so that all connections are there

// What every rank has, in their order; equally many elements of each.
template <class T>
std::vector<T> gathered(Communicator& ranks, std::vector<T> mine) {
  std::vector<T> all(mine.size() * size_t(ranks.size()));
  const auto bytes = [](std::vector<T>& v) { return Tensor(v.data(), DType::u8, {int64_t(v.size() * sizeof(T))}); };
  ranks.all_gather(bytes(mine), bytes(all)).wait();
  return all;
}

constexpr size_t kText = 128;
std::vector<std::string> all_texts(Communicator& ranks, const std::string& mine) {
  WEFT_CHECK(mine.size() < kText, "\"{}\" has {} bytes or more", mine, kText);
  std::vector<char> text(kText);
  mine.copy(text.data(), mine.size());
  const std::vector<char> all = gathered(ranks, text);
  std::vector<std::string> texts;
  for (size_t r = 0; r < size_t(ranks.size()); ++r) texts.emplace_back(all.data() + r * kText);
  return texts;
}

// Why tensors go through the host; the same on all ranks. Empty where they need not.
std::string why_by_host(Communicator& world, const FabricOfRank& mine) {
  const std::string lacks = mine.fabric ? "" : fmt::format("rank {}: {}", world.rank(), mine.why_none);
  if (std::string why = first_text(world, lacks); !why.empty()) return why;
  const std::vector<std::string> kinds = all_texts(world, mine.fabric->description());
  const std::vector<std::string> devices = all_texts(world, mine.fabric->device());
  std::map<std::string, size_t> rank_of;
  for (size_t r = 0; r < kinds.size(); ++r) {
    if (kinds[r] != kinds[0]) return fmt::format("rank 0 has {}, rank {} has {}", kinds[0], r, kinds[r]);
    if (const auto [other, is_new] = rank_of.try_emplace(devices[r], r); !is_new)
      return fmt::format("ranks {} and {} share a GPU", other->second, r);
  }
  return "";
}

// Makes the lanes of one rank. All ranks make theirs in the same order: the groups of an axis have no rank in common,
// and links of the pipeline have an order of their own, so no rank waits for one that waits for it.
class Joiner {
 public:
  Joiner(std::shared_ptr<FabricHub> hub, int world_rank) : hub_(std::move(hub)), world_rank_(world_rank) {}

  void join_group(std::shared_ptr<Communicator>& ranks) {
    if (ranks->size() == 1 || ranks->size() > hub_->fabric().most_ranks()) return;
    const std::vector<int> members = gathered(*ranks, std::vector<int>{world_rank_});
    std::shared_ptr<Lane>& group = groups_[members];  // there or not on all of them
    if (group == nullptr) {
      const std::vector<std::byte> name = gathered(*ranks, made_name(ranks->rank() == 0));
      group = hub_->connect({.name = std::span(name).first(hub_->fabric().name_bytes()),
                             .size = ranks->size(),
                             .rank = ranks->rank(),
                             .staging_bytes = kStaging});
      greet_group(*group->transport, ranks->size(), ranks->rank());
    }
    ranks = std::make_shared<FabricCommunicator>(hub_, ranks, FabricLanes{.group = group, .to = {}, .from = {}});
  }

  // Each direction between two neighbours has a lane of its own, as neither waits for the other.
  void join_links(std::shared_ptr<Communicator>& ranks) {
    const int n = ranks->size(), me = ranks->rank();
    if (n == 1) return;
    const size_t bytes = hub_->fabric().name_bytes();
    std::vector<std::byte> mine = made_name(true);  // of the link to the next rank, then to the one before
    const std::vector<std::byte> back = made_name(n > 2);
    mine.insert(mine.end(), back.begin(), back.end());
    const std::vector<std::byte> names = gathered(*ranks, mine);
    FabricLanes lanes;
    const auto link = [&](int from, int to, int which) {
      if (me != from && me != to) return;
      const auto name = std::span(names).subspan(size_t(2 * from + which) * bytes, bytes);
      (me == from ? lanes.to[to] : lanes.from[from]) = linked(name, me == from ? 0 : 1);
    };
    const auto link_with_next = [&](int r) {
      link(r, (r + 1) % n, 0);
      if (n > 2) link((r + 1) % n, r, 1);
    };
    for (int r = 0; r < n; r += 2) link_with_next(r);  // most of them at the same time
    for (int r = 1; r < n; r += 2) link_with_next(r);
    for (const auto& [peer, lane] : lanes.to) WEFT_CHECK(lanes.from.contains(peer), "a link to {} of one way", peer);
    ranks = std::make_shared<FabricCommunicator>(hub_, ranks, std::move(lanes));
  }

 private:
  std::vector<std::byte> made_name(bool is_wanted) {
    std::vector<std::byte> name(hub_->fabric().name_bytes());
    if (is_wanted) hub_->fabric().make_name(name);
    return name;
  }
  std::shared_ptr<Lane> linked(std::span<const std::byte> name, int rank) {
    auto lane =
        hub_->connect({.name = name, .size = 2, .rank = rank, .staging_bytes = kGreeting, .only_messages = true});
    const Transport::Message message{lane->transport->staging().data(), kGreeting, 1 - rank};
    if (rank == 0)
      lane->transport->exchange({&message, 1}, {});
    else
      lane->transport->exchange({}, {&message, 1});
    wait_greeted(*lane->transport);
    return lane;
  }
  void greet_group(Transport& transport, int size, int rank) {
    std::byte* const at = transport.staging().data();
    std::vector<Transport::Message> sent, received;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      sent.push_back({at, kGreeting, r});
      received.push_back({at + (r + 1) * kGreeting, kGreeting, r});
    }
    transport.exchange(sent, received);
    transport.all_gather(at, at + kGreeting, kGreeting);
    wait_greeted(transport);
  }
  void wait_greeted(Transport& transport) {
    hub_->wait(transport, transport.queue().mark(), {.op = "greeting", .elements = kGreeting, .site = Site::current()});
  }

  std::shared_ptr<FabricHub> hub_;
  int world_rank_;
  std::map<std::vector<int>, std::shared_ptr<Lane>> groups_;  // by their ranks in the world
};

// Progress of the host's mesh, if it makes any, and of the devices'.
class FabricProgress final : public CommProgress {
 public:
  FabricProgress(std::shared_ptr<CommProgress> host, std::shared_ptr<FabricHub> hub)
      : host_(std::move(host)), hub_(std::move(hub)) {}
  void poll() override {
    if (host_) host_->poll();
  }
  bool lends() const override { return host_ && host_->lends(); }
  void lend() override { host_->lend(); }
  bool is_by_devices() const override { return true; }
  void order_by(std::function<DeviceQueue*()> issue) override { hub_->order_by(std::move(issue)); }
  void settle() override { hub_->settle(); }
  void stamp_calls(std::function<void()> settled) override { hub_->stamp_calls(std::move(settled)); }
  void give_up() override { hub_->give_up("this rank has failed"); }

 private:
  std::shared_ptr<CommProgress> host_;
  std::shared_ptr<FabricHub> hub_;
};

}  // namespace

FabricMesh over_fabric(const ProcessMesh& host, const FabricOfRank& mine) {
  if (host.world->size() == 1) return {host, ""};
  if (const std::string why = why_by_host(*host.world, mine); !why.empty())
    return {host, "tensors go between the ranks' GPUs through the host: " + why};
  const int64_t free = mine.fabric->free_bytes();
  const auto hub =
      std::make_shared<FabricHub>(mine.fabric, host.poller(), FabricHub::Patience{mine.timeout_s, mine.told_s});
  Joiner joiner(hub, host.world->rank());
  ProcessMesh mesh = host;
  mesh.each([&](std::shared_ptr<Communicator>& ranks, const std::string& name) {
    if (name == "pp" || name == "teacher_pp")
      joiner.join_links(ranks);
    else if (name != "world")
      joiner.join_group(ranks);
  });
  mesh.progress = std::make_shared<FabricProgress>(host.progress, hub);
  const double taken_gib = double(free - mine.fabric->free_bytes()) / double(1 << 30);
  return {std::move(mesh),
          fmt::format("tensors go from GPU to GPU by {}; its {} connections take {:.2f} GiB of each, beside the plan",
                      mine.fabric->description(), hub->num_lanes(), taken_gib)};
}

}  // namespace weft
