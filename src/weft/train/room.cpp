#include "weft/train/room.h"

#include <algorithm>
#include <optional>

#include "weft/base/error.h"

namespace weft {
namespace {

double gib(int64_t bytes) { return double(bytes) / double(1 << 30); }

void require_room_on(const Machine& device, const std::vector<int>& ranks, const LayoutPlan& plan) {
  if (!device.free_bytes || ranks.empty()) return;
  int64_t bytes = 0;
  for (const int rank : ranks) bytes += planned_bytes(plan, rank, false);
  const int64_t free = device.free_bytes();
  if (bytes <= free) return;
  const bool shared = ranks.size() > 1;
  throw ConfigError(
      fmt::format("no memory for the plan{} {}: {:.2f} GiB, {} has {:.2f} GiB free; {}`weft plan` shows "
                  "what the recipe needs and why",
                  shared ? "s of ranks" : " of rank", fmt::join(ranks, ", "), gib(bytes), device.device, gib(free),
                  shared ? "these ranks share it: fewer ranks, or more GPUs; " : ""));
}

}  // namespace

int64_t planned_bytes(const LayoutPlan& plan, int rank, bool with_host) {
  const MeshPlace at = place_of(plan.run.step.mesh, rank);
  const auto has = [](const std::vector<int>& all, int one) { return std::count(all.begin(), all.end(), one) > 0; };
  std::optional<int64_t> least;
  for (const RankClass& c : plan.classes) {
    if (!has(c.stages, at.pp) || !has(c.tp_ranks, at.tp)) continue;
    const int64_t bytes = c.plan.total_bytes() - (with_host ? 0 : c.plan.persistent.records);
    least = std::min(least.value_or(bytes), bytes);
  }
  WEFT_CHECK(least, "no plan for rank {}", rank);
  return *least;
}

void require_room(const Machine& machine, const LayoutPlan& plan) {
  const size_t num_devices = std::max<size_t>(1, machine.devices.size());
  std::vector<std::vector<int>> ranks(num_devices);
  for (int rank = 0; rank < plan.run.step.mesh.world(); ++rank) ranks[size_t(rank) % num_devices].push_back(rank);
  for (size_t d = 0; d < num_devices; ++d) require_room_on(machine.of_rank(int(d)), ranks[d], plan);
}

}  // namespace weft
