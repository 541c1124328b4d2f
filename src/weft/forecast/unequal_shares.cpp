// Shares of a step's micro-batches for data-parallel ranks on unequal devices: each rank's step by itself.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "weft/base/error.h"
#include "weft/forecast/forecast.h"
#include "weft/forecast/stage_work.h"
#include "weft/forecast/unequal_forecast.h"
#include "weft/schedule/shares.h"

namespace weft {
namespace {

constexpr double kSaves = 0.001;  // of a step: less is no gain
constexpr int kMostMoves = 16;    // of one micro-batch to another rank

// The kinds of devices that the ranks of one rank of dp are on in a stage, ascending.
std::vector<size_t> kinds_of_rank(const UnequalCluster& cluster, const MeshSizes& mesh, int dp, int stage) {
  std::vector<size_t> kinds;
  for (int cp = 0; cp < mesh.cp; ++cp)
    for (int tp = 0; tp < mesh.tp; ++tp)
      kinds.push_back(cluster.kind_of(rank_at(mesh, {.dp = dp, .pp = stage, .cp = cp, .tp = tp})));
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

// What the ranks of dp have of a stage together: the fullest of them, the smallest device.
void join(UnequalStage& all, const UnequalStage& one, bool first) {
  if (first) {
    all = one;
    return;
  }
  for (const size_t k : one.kinds)
    if (std::find(all.kinds.begin(), all.kinds.end(), k) == all.kinds.end()) all.kinds.push_back(k);
  std::sort(all.kinds.begin(), all.kinds.end());
  all.memory_bytes = std::max(all.memory_bytes, one.memory_bytes);
  all.device_bytes = std::min(all.device_bytes, one.device_bytes);
  all.room_bytes = std::min(all.room_bytes, one.room_bytes);
}

std::vector<int64_t> shares_in(const Recipe& recipe) {
  if (!recipe.parallel.micro_batches.empty()) return recipe.parallel.micro_batches;
  return std::vector<int64_t>(size_t(recipe.parallel.dp), num_micro_batches_of(recipe));
}

bool can_have(Recipe recipe, const std::vector<int64_t>& shares) {
  recipe.parallel.micro_batches = shares;
  try {
    check_supported(recipe);
    return true;
  } catch (const ConfigError&) { return false; }
}

bool have_room(const UnequalForecast& f) {
  return std::all_of(f.stages.begin(), f.stages.end(), [](const UnequalStage& s) { return s.has_room(); });
}

}  // namespace

const UnequalPlanner::Cost& UnequalPlanner::cost_of_share(const Recipe& recipe, const RunPlan& plan, const RunWork& run,
                                                          int stage, int dp) {
  const StepSpec step = step_of(recipe, plan, rank_at(run.mesh, {.dp = dp, .pp = stage, .cp = 0, .tp = 0}));
  std::vector<size_t> kinds = kinds_of_rank(cluster_, run.mesh, dp, stage);
  std::string key = fmt::format("{} {} x {} on", stage, stage_kind(plan, step), run.num_micro_batches);
  for (const size_t k : kinds) key += fmt::format(" {}", k);
  const auto known = costs_.find(key);
  if (known != costs_.end()) return known->second;
  return costs_.emplace(key, measure(plan, step, run, std::move(kinds))).first->second;
}

UnequalForecast UnequalPlanner::forecast_shares(Recipe recipe) {
  const RunPlan plan = forecast_plan(recipe, config_);
  recipe.parallel.pipeline_layout = block_layout_of(recipe, plan.model);
  UnequalForecast f = beginning_of(recipe, plan);
  const RunWork without_stages = f.work;
  f.shares = shares_in(recipe);
  f.stages.resize(size_t(f.work.mesh.pp));
  std::vector<UnequalStage> of_slowest;
  // Of ranks with the same kinds of devices in each stage, and as many micro-batches: such are priced once.
  std::map<std::pair<std::vector<std::vector<size_t>>, int64_t>, double> seconds;
  for (int dp = 0; dp < without_stages.mesh.dp; ++dp) {
    RunWork work = without_stages;
    work.num_micro_batches = f.shares.at(size_t(dp));
    std::vector<std::vector<size_t>> kinds;
    for (int stage = 0; stage < work.mesh.pp; ++stage) kinds.push_back(kinds_of_rank(cluster_, work.mesh, dp, stage));
    const auto [priced, is_new] = seconds.try_emplace({std::move(kinds), work.num_micro_batches}, 0.0);
    if (!is_new) {
      f.rank_s.push_back(priced->second);
      continue;
    }
    std::vector<UnequalStage> stages;
    for (int stage = 0; stage < work.mesh.pp; ++stage) {
      const Cost& cost = cost_of_share(recipe, plan, work, stage, dp);
      work.kinds.push_back(cost.work);
      work.kind_of.push_back(stage);
      stages.push_back(cost.stage);
      join(f.stages[size_t(stage)], cost.stage, dp == 0);
    }
    StepForecast step = price_step(work, f.profile);
    priced->second = step.step_s;
    f.rank_s.push_back(step.step_s);
    if (dp > 0 && step.step_s <= f.step.step_s) continue;
    f.step = std::move(step);
    f.work = std::move(work);
    of_slowest = std::move(stages);
  }
  for (size_t s = 0; s < f.stages.size(); ++s) {
    f.stages[s].slowest = f.stages[s].quickest = of_slowest[s].slowest;
    f.stages[s].busy_s = f.stages[s].quickest_s = of_slowest[s].busy_s;
  }
  end_forecast(f, recipe);
  return f;
}

std::optional<BetterShares> UnequalPlanner::better_shares(const UnequalForecast& now) {
  Recipe recipe = recipe_;
  recipe.parallel.pipeline_layout = now.blocks;
  const std::vector<int64_t> given = shares_in(recipe);
  const int64_t all = std::accumulate(given.begin(), given.end(), int64_t{0});
  if (given.size() < 2 || all == int64_t(given.size())) return {};
  std::vector<int64_t> uneven(given.size(), 1);
  uneven[0] = all - int64_t(given.size()) + 1;
  if (!can_have(recipe, uneven)) return {};  // before anything is priced
  const auto forecast_of = [&](const std::vector<int64_t>& shares) {
    recipe.parallel.micro_batches = shares;
    return forecast_shares(recipe);
  };
  const UnequalForecast before = forecast_of(given);
  std::vector<double> speeds;
  for (size_t r = 0; r < given.size(); ++r) speeds.push_back(double(given[r]) / before.rank_s[r]);
  std::vector<int64_t> shares = shares_by_weight(speeds, all);
  if (shares == given || !can_have(recipe, shares)) return {};
  UnequalForecast best = forecast_of(shares);
  for (int move = 0; move < kMostMoves; ++move) {  // what a step takes beside its micro-batches moves the balance
    const auto from = size_t(std::max_element(best.rank_s.begin(), best.rank_s.end()) - best.rank_s.begin());
    const auto to = size_t(std::min_element(best.rank_s.begin(), best.rank_s.end()) - best.rank_s.begin());
    if (from == to || shares[from] == 1) break;
    --shares[from], ++shares[to];
    UnequalForecast moved = forecast_of(shares);
    if (moved.step.step_s >= best.step.step_s) break;
    best = std::move(moved);
  }
  if (!have_room(best) || best.step.step_s > (1 - kSaves) * before.step.step_s) return {};
  return BetterShares{std::move(best), before.step.step_s};
}

std::string better_shares_text(const std::optional<BetterShares>& better) {
  if (!better) return "";
  const UnequalForecast& f = better->forecast;
  return fmt::format("\nbetter shares of the batch: parallel.micro_batches = {}: {} a step ({:+.1f} %)\n",
                     text_of_shares(f.shares), duration_text(f.step.step_s), (f.step.step_s / better->now_s - 1) * 100);
}

}  // namespace weft
