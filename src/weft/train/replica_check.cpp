#include "weft/train/replica_check.h"

#include <algorithm>
#include <array>
#include <map>

#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/comm/agree.h"
#include "weft/device/host_parts.h"
#include "weft/step/kept_states.h"

namespace weft {
namespace {

using Hashes = std::vector<uint64_t>;

uint64_t hash_of(const Hashes& all) {
  return hash64({reinterpret_cast<const char*>(all.data()), all.size() * sizeof all[0]});
}

uint64_t hash_of(const Memory& memory, const Tensor& t) {
  WEFT_CHECK(t.contiguous(), "{} is hashed", t.to_string());
  Hashes parts;
  read_parts(memory, t, [&](const Tensor& part, int64_t) {
    parts.push_back(hash64({static_cast<const char*>(part.data), size_t(part.bytes())}));
  });
  return parts.size() == 1 ? parts[0] : hash_of(parts);
}

// A tensor that this rank holds, and what it is called.
struct Held {
  const Param* param;
  enum class Is : uint8_t { master, state, maxima, value } is;
  size_t state = 0;
  uint64_t hash = 0;
};

// Ranks that hold the same tensors, in the same order.
struct Circle {
  Communicator* ranks;
  std::vector<Held> held = {};
};

// All circles that this rank is in, with what it holds; in the same order on every rank of each.
class Circles {
 public:
  Circles(const RankRun& rank, bool repeats) : params_(rank.state.params), repeats_(repeats) {
    for (const Param* p : params_.params(ParamStore::Copies::with)) add(*p);
  }
  const std::vector<Circle>& all() const { return all_; }

 private:
  void add(const Param& p) {
    const ReplicaGroup& group = params_.group_of(p);
    // Also where this rank holds nothing of it: the order of circles must not depend on that.
    for (Communicator* ranks : {group.ranks.replicas.get(), group.ranks.all.get(), group.tp.get()}) circle(ranks);
    if (!p.spec().in_codes())
      for (const ParamStore::Stored& block : params_.stored(p)) add_stored(p, group, block);
    const int stage = group.order.zero_stage;
    if (stage == 3 || (stage == 0 && p.value.dtype == params_.precision().stat)) return;  // the master's own memory
    const bool alike =
        std::all_of(p.parts().begin(), p.parts().end(), [this](const auto& part) { return is_alike(part); });
    add_held({&p, Held::Is::value}, p.value, {group.ranks.all.get(), alike ? group.tp.get() : nullptr});
  }
  void add_stored(const Param& p, const ReplicaGroup& group, const ParamStore::Stored& block) {
    const bool alike = is_alike(p.parts()[size_t(block.part)]);
    const std::array<Communicator*, 2> who{group.ranks.replicas.get(), alike ? group.tp.get() : nullptr};
    add_held({&p, Held::Is::master}, block.master, who);
    for (size_t k = 0; k < block.states.size(); ++k) add_held({&p, Held::Is::state, k}, block.states[k], who);
    for (size_t k = 0; k < block.blocks.size(); ++k) add_held({&p, Held::Is::maxima, k}, block.blocks[k].absmax, who);
  }
  bool is_alike(const HeldPart& part) const { return repeats_ && !is_cut(part.held); }
  void add_held(Held held, const Tensor& t, const std::array<Communicator*, 2>& who) {
    const auto others = [](Communicator* ranks) { return ranks != nullptr && ranks->size() > 1; };
    if (t.elements() == 0 || std::none_of(who.begin(), who.end(), others)) return;
    held.hash = hash_of(params_.memory(), t);
    for (Communicator* ranks : who)
      if (others(ranks)) circle(ranks).held.push_back(held);
  }
  Circle& circle(Communicator* ranks) {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const Circle& c) { return c.ranks == ranks; });
    return found != all_.end() ? *found : all_.emplace_back(Circle{ranks});
  }

  const ParamStore& params_;
  const bool repeats_;
  std::vector<Circle> all_;
};

// What each rank says, [rank][which]; every rank says as much.
std::vector<Hashes> wait_exchange(Communicator& ranks, const Hashes& mine) {
  constexpr int kHalf = 32;  // bits, which a double holds exactly
  std::vector<double> halves(size_t(ranks.size()) * mine.size() * 2, 0);
  for (size_t i = 0; i < mine.size(); ++i) {
    double* const at = &halves[(size_t(ranks.rank()) * mine.size() + i) * 2];
    at[0] = double(mine[i] >> kHalf);
    at[1] = double(uint32_t(mine[i]));
  }
  ranks.all_reduce({halves.data(), DType::f64, {int64_t(halves.size())}}).wait();
  std::vector<Hashes> all(size_t(ranks.size()), Hashes(mine.size()));
  for (size_t i = 0; i < halves.size() / 2; ++i)
    all[i / mine.size()][i % mine.size()] = uint64_t(halves[2 * i]) << kHalf | uint64_t(halves[2 * i + 1]);
  return all;
}

std::string name_of(const Held& held, const Optimizer& optimizer) {
  const auto state = [&] { return states_in_file(held.param->spec(), optimizer).names.at(held.state); };
  const std::string& weight = held.param->spec().name;
  switch (held.is) {
    case Held::Is::master:
      return weight;
    case Held::Is::state:
      return fmt::format("{} of {}", state(), weight);
    case Held::Is::maxima:
      return fmt::format("maxima of {} of {}", state(), weight);
    case Held::Is::value:
      break;
  }
  return weight + ", as layers read it";
}

// The ranks (of the world) by what they say of one tensor.
void divide(const std::vector<Hashes>& said, size_t which, ReplicaDifference& to) {
  std::map<uint64_t, std::vector<int>> by_hash;
  for (const Hashes& rank : said) by_hash[rank[which]].push_back(int(rank.back()));
  for (const auto& [hash, ranks] : by_hash)
    if (2 * ranks.size() > said.size()) to.alike = ranks;
  for (const Hashes& rank : said)
    if (std::find(to.alike.begin(), to.alike.end(), int(rank.back())) == to.alike.end())
      to.others.push_back(int(rank.back()));
}

// Of a circle whose ranks do not agree; the same on each of them.
ReplicaDifference wait_find_difference(const Circle& circle, const RankRun& rank) {
  Hashes mine;
  for (const Held& held : circle.held) mine.push_back(held.hash);
  mine.push_back(uint64_t(rank.mesh.world->rank()));
  const std::vector<Hashes> said = wait_exchange(*circle.ranks, mine);
  ReplicaDifference found;
  for (size_t i = 0; i < circle.held.size(); ++i) {
    if (std::all_of(said.begin(), said.end(), [&](const Hashes& h) { return h[i] == mine[i]; })) continue;
    if (found.tensors++ > 0) continue;
    found.tensor = name_of(circle.held[i], *rank.plan.optimizer);
    divide(said, i, found);
  }
  return found;
}

}  // namespace

std::optional<ReplicaDifference> wait_compare_replicas(RankRun& rank, bool repeats) {
  if (rank.mesh.world->size() == 1) return {};
  rank.backend.wait_all();
  std::string mine;
  const Circles circles(rank, repeats);
  for (const Circle& circle : circles.all()) {
    if (circle.ranks->size() == 1) continue;
    Hashes hashes;
    for (const Held& held : circle.held) hashes.push_back(held.hash);
    const uint64_t all = hash_of(hashes);
    const std::vector<Hashes> said = wait_exchange(*circle.ranks, {all});
    if (std::all_of(said.begin(), said.end(), [&](const Hashes& h) { return h[0] == all; })) continue;
    const ReplicaDifference found = wait_find_difference(circle, rank);
    if (mine.empty()) mine = found.to_json().dump();
  }
  const std::string first = first_text(*rank.mesh.world, mine);
  if (first.empty()) return {};
  const nlohmann::json j = nlohmann::json::parse(first);
  return ReplicaDifference{.tensor = j["tensor"], .tensors = j["tensors"], .alike = j["alike"], .others = j["ranks"]};
}

std::string ReplicaDifference::to_string() const {
  const auto list = [](const std::vector<int>& ranks) {
    return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  };
  const std::string what =
      tensors == 1 ? tensor : fmt::format("{}, the first of {} tensors that differ", tensor, tensors);
  if (alike.empty())
    return fmt::format("ranks {} hold different bytes of {}, and no majority says which are right",
                       fmt::join(others, others.size() == 2 ? " and " : ", "), what);
  return fmt::format("{} {} other bytes than {} of {}", list(others), others.size() == 1 ? "holds" : "hold",
                     list(alike), what);
}

nlohmann::json ReplicaDifference::to_json() const {
  return {{"tensor", tensor}, {"tensors", tensors}, {"alike", alike}, {"ranks", others}};
}

}  // namespace weft
