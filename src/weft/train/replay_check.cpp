#include "weft/train/replay_check.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/json.h"
#include "weft/comm/agree.h"
#include "weft/device/host_parts.h"
#include "weft/train/planted_numbers.h"

namespace weft {
namespace {

// Ranks exchange hashes by adding zeros to them: 64 bits are two numbers that a double holds exactly.
void put_halves(uint64_t bits, double* at) {
  at[0] = double(bits >> 32);
  at[1] = double(uint32_t(bits));
}
uint64_t from_halves(const double* at) { return uint64_t(at[0]) << 32 | uint64_t(at[1]); }

void wait_sum(Communicator& ranks, std::vector<double>& numbers) {
  ranks.all_reduce({numbers.data(), DType::f64, {int64_t(numbers.size())}}).wait();
}

uint64_t hash_of_gradient(const Memory& memory, const Tensor& t) {
  uint64_t all = 0;
  read_parts(memory, t, [&](const Tensor& part, int64_t) {
    const uint64_t both[2] = {all, hash64({static_cast<const char*>(part.data), size_t(part.bytes())})};
    all = hash64({reinterpret_cast<const char*>(both), sizeof both});
  });
  return all;
}

GradientOrder order_of_neighbour(const StepSpec& step, int rank) {
  return step.order.of_rank((place_of(step.mesh, rank).dp + 1) % step.mesh.dp);
}

}  // namespace

std::string wait_machines_differ(Communicator& world, const std::string& machine) {
  const std::string first = first_text(world, world.rank() == 0 ? machine : "");
  const std::string mine =
      fmt::format("rank {} computes with {}, and rank 0 with {}: their bits may differ", world.rank(), machine, first);
  return first_text(world, machine == first ? "" : mine);
}

ReplayCheck::ReplayCheck(RankRun& rank)
    : rank_(rank), neighbour_(order_of_neighbour(rank.plan.step, rank.mesh.world->rank())) {}

int64_t ReplayCheck::of_neighbour(int64_t micro_batch) const { return neighbour_.global_of(micro_batch); }

int ReplayCheck::neighbour_of(int rank) const {
  MeshPlace place = place_of(rank_.mesh.sizes, rank);
  place.dp = (place.dp + 1) % rank_.mesh.sizes.dp;
  return rank_at(rank_.mesh.sizes, place);
}

ReplayCheck::Begins ReplayCheck::watch(Work work, int64_t step) {
  of(work).clear();
  return [this, work, step](const Action* action, const Instruction& i) {
    if (action != nullptr && i.op == Instruction::Op::reduce_gradients) keep(work, action->micro_batch, i.at, step);
  };
}

void ReplayCheck::keep(Work work, int64_t micro_batch, int unit, int64_t step) {
  const ParamStore& params = rank_.state.params;
  Gradients& kept = of(work);
  rank_.backend.wait_all();
  for (const Param* p : params.params_of(unit)) {
    if (!p->learns() || p->grad.elements() == 0) continue;
    if (kept.empty()) plant_number(params, p->grad, work == Work::own ? "work" : "replayed", step);
    kept.push_back({micro_batch, p, hash_of_gradient(params.memory(), p->grad)});
  }
}

namespace {

// The ranks that are in most of the pairs (whose work, who did it again), which are of work that differs.
std::vector<int> most_suspect(const std::vector<std::pair<int, int>>& pairs, int world) {
  std::vector<int> times(size_t(world), 0), ranks;
  for (const auto& [rank, again] : pairs) ++times[size_t(rank)], ++times[size_t(again)];
  const int most = *std::max_element(times.begin(), times.end());
  for (int r = 0; r < world; ++r)
    if (times[size_t(r)] == most) ranks.push_back(r);
  return ranks;
}

}  // namespace

std::optional<ReplayDifference> ReplayCheck::wait_compare() {
  Communicator& world = *rank_.mesh.world;
  const int n = world.size();
  const auto at = [](int rank, Work work) { return (size_t(rank) * 2 + size_t(work)) * 2; };
  std::vector<double> hashes(size_t(n) * 4, 0);
  for (const Work work : {Work::replayed, Work::own}) {
    std::vector<uint64_t> all;
    for (const Gradient& g : of(work)) all.push_back(g.hash);
    put_halves(hash64({reinterpret_cast<const char*>(all.data()), all.size() * sizeof(uint64_t)}),
               &hashes[at(world.rank(), work)]);
  }
  wait_sum(world, hashes);
  std::vector<std::pair<int, int>> pairs;
  for (int r = 0; r < n; ++r)
    if (const int of = neighbour_of(r);
        from_halves(&hashes[at(r, Work::replayed)]) != from_halves(&hashes[at(of, Work::own)]))
      pairs.emplace_back(of, r);
  if (pairs.empty()) return {};
  const auto [rank, again] = pairs[0];
  const nlohmann::json first = nlohmann::json::parse(wait_first_difference(rank, again));
  return ReplayDifference{.tensor = first["tensor"],
                          .tensors = first["tensors"],
                          .micro_batch = first["micro_batch"],
                          .rank = rank,
                          .again = again,
                          .ranks = most_suspect(pairs, n)};
}

// The rank that did the work again looks for it and tells all, in JSON.
std::string ReplayCheck::wait_first_difference(int rank, int again) {
  Communicator& world = *rank_.mesh.world;
  const Gradients &own = of(Work::own), &replayed = of(Work::replayed);
  std::vector<double> count{world.rank() == rank ? double(own.size()) : 0};
  wait_sum(world, count);
  std::vector<double> hashes(size_t(count[0]) * 2, 0);
  for (size_t i = 0; world.rank() == rank && i < own.size(); ++i) put_halves(own[i].hash, &hashes[2 * i]);
  wait_sum(world, hashes);
  std::string text;
  if (world.rank() == again) {
    WEFT_CHECK(hashes.size() == 2 * replayed.size(), "{} gradients of rank {}, done again: {}", hashes.size() / 2, rank,
               replayed.size());
    nlohmann::json found{{"tensors", 0}};
    for (size_t i = 0; i < replayed.size(); ++i) {
      if (from_halves(&hashes[2 * i]) == replayed[i].hash) continue;
      if (found["tensors"] == 0) {
        found["tensor"] = replayed[i].param->spec().name;
        found["micro_batch"] = of_neighbour(replayed[i].micro_batch);
      }
      found["tensors"] = found["tensors"].get<int64_t>() + 1;
    }
    text = found.dump();
  }
  return first_text(world, text);
}

std::string ReplayDifference::to_string() const {
  const std::string more = tensors == 1 ? "" : fmt::format(" (the first of {} gradients that differ)", tensors);
  const std::string who =
      ranks.size() == 1 ? fmt::format("; rank {} is in more pairs that differ than any other", ranks[0]) : "";
  return fmt::format(
      "rank {} computed the work of rank {} again, from the same weights and data, and got other bits for the gradient "
      "of {} of micro-batch {}{}{}",
      again, rank, tensor, micro_batch, more, who);
}

nlohmann::json ReplayDifference::to_json() const {
  return {{"tensor", tensor},
          {"tensors", tensors},
          {"micro_batch", micro_batch},
          {"ranks", ranks},
          {"alike", nlohmann::json::array()},
          {"replayed_by", again},
          {"work_of", rank}};
}

}  // namespace weft
