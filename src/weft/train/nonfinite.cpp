#include "weft/train/nonfinite.h"

#include <cmath>

#include "weft/base/json.h"
#include "weft/comm/agree.h"
#include "weft/ops/checked.h"

namespace weft {
namespace {

bool has_nonfinite_gradient(const RankRun& rank) {
  for (const Param* p : rank.state.params.params(ParamStore::Copies::with)) {
    if (!p->learns()) continue;
    for (const ParamStore::Stored& block : rank.state.params.stored(*p))
      if (!find_nonfinite(rank.state.params.memory(), block.grad).empty()) return true;
  }
  return false;
}

std::vector<int> ranks_where(Communicator& world, bool here) {
  std::vector<double> is(size_t(world.size()), 0);
  is[size_t(world.rank())] = here ? 1 : 0;
  world.all_reduce({is.data(), DType::f64, {int64_t(is.size())}}).wait();
  std::vector<int> ranks;
  for (size_t r = 0; r < is.size(); ++r)
    if (is[r] > 0) ranks.push_back(int(r));
  return ranks;
}

}  // namespace

NonFinite wait_find_nonfinite(RankRun& rank) {
  NonFinite found;
  const GradientOrder& order = rank.plan.step.order;
  const auto* losses = rank.state.losses.as<double>();
  for (int64_t m = 0; m < rank.state.losses.rows(); ++m) {
    if (std::isfinite(losses[m])) continue;
    found.micro_batches.push_back(m);
    found.data_ranks.push_back(order.holder_of(m).rank);
  }
  rank.backend.wait_all();
  found.gradient = first_text(*rank.mesh.world, rank.state.norm->wait_first_nonfinite(rank.backend));
  found.ranks = ranks_where(*rank.mesh.world, has_nonfinite_gradient(rank));
  return found;
}

std::string NonFinite::to_string() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < micro_batches.size(); ++i)
    all.push_back(fmt::format("micro-batch {} (dp {})", micro_batches[i], data_ranks[i]));
  if (!gradient.empty()) all.push_back(gradient);
  if (!ranks.empty()) all.push_back(fmt::format("on rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")));
  return all.empty() ? "no number that was kept" : fmt::format("{}", fmt::join(all, ", "));
}

nlohmann::json NonFinite::to_json() const {
  return {{"micro_batches", micro_batches}, {"tensor", gradient}, {"ranks", ranks}};
}

}  // namespace weft
