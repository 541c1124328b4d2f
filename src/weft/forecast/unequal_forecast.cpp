#include "weft/forecast/unequal_forecast.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/layout_search.h"
#include "weft/forecast/stage_work.h"

namespace weft {
namespace {

// The same work as seconds of devices of generation 0, so that one pace fits all kinds.
void settle_generation(StageWork& work, const ProgramProfile& profile, int generation) {
  const auto settle = [&](ComputeWork& compute) {
    for (int c = 0; c < kWorkClasses; ++c)
      compute.seconds[size_t(c)] /= part_on_generation(profile, WorkClass(c), generation);
  };
  for (ActionWork& action : work.actions) settle(action.compute);
  settle(work.before.compute);
  settle(work.end);
}

// What the stage alone takes of a step.
double seconds_alone(const StageWork& work, const RunWork& run, const ProgramProfile& profile) {
  RunWork one = run;
  one.mesh.pp = 1;
  one.kinds = {work};
  one.kind_of = {0};
  return price_step(one, profile).step_s;
}

double peak_of(const ClusterSpec& kind, bool f32) {
  return f32 && kind.device.peak.f32 > 0 ? kind.device.peak.f32 : kind.device.peak.bits16;
}

// The sum over all devices that are used; 0 where it is 0 of one kind of them.
template <class Of>
double sum_over(const UnequalForecast& f, Of of) {
  double sum = 0;
  for (size_t k = 0; k < f.used.size(); ++k) {
    if (f.used[k] == 0) continue;
    const double one = of(f.cluster.kinds[k]);
    if (one <= 0) return 0;
    sum += one * double(f.used[k]);
  }
  return sum;
}

std::vector<size_t> kinds_of_stage(const UnequalCluster& cluster, const MeshSizes& mesh, int stage) {
  std::vector<bool> has(cluster.kinds.size(), false);
  for (int dp = 0; dp < mesh.dp; ++dp)
    for (int cp = 0; cp < mesh.cp; ++cp)
      for (int tp = 0; tp < mesh.tp; ++tp)
        has[cluster.kind_of(rank_at(mesh, {.dp = dp, .pp = stage, .cp = cp, .tp = tp}))] = true;
  std::vector<size_t> kinds;
  for (size_t k = 0; k < has.size(); ++k)
    if (has[k]) kinds.push_back(k);
  return kinds;
}

}  // namespace

bool UnequalForecast::fits() const {
  return std::all_of(stages.begin(), stages.end(), [](const UnequalStage& s) { return s.fits(); });
}

double UnequalForecast::joules_per_step() const {
  return step.step_s * sum_over(*this, [](const ClusterSpec& kind) { return kind.device.watts; });
}

double UnequalForecast::price_per_step() const {
  return step.step_s / 3600 * sum_over(*this, [](const ClusterSpec& kind) { return kind.price_per_device_hour; });
}

UnequalPlanner::UnequalPlanner(const Recipe& recipe, const HfConfig& config, const UnequalCluster& cluster,
                               const Profiles& profiles)
    : recipe_(recipe), config_(config), cluster_(cluster), profiles_(profiles) {
  require_priced(recipe);
  const MeshSizes mesh = mesh_sizes_of(recipe);
  if (mesh.world() > cluster.num_devices())
    throw ConfigError(fmt::format("the layout has {} ranks, the cluster {} devices; what fits: {}", mesh.world(),
                                  cluster.num_devices(), fewer_ranks(recipe, cluster.num_devices())));
  if (mesh.teacher)
    throw ConfigError(
        "a step with a teacher that has axes of its own is not forecast on unequal devices ([[others]]); what works: a "
        "cluster of one kind of node, or objective.top_k = 0");
  kinds_ = cluster.kinds;
  int64_t left = mesh.world();
  for (const ClusterSpec& kind : cluster.kinds) {
    used_.push_back(std::min<int64_t>(left, kind.num_devices));
    left -= used_.back();
  }
  LinkSpec slowest = kinds_[0].scale_out;
  for (size_t k = 1; k < kinds_.size(); ++k) {
    if (used_[k] == 0) continue;
    slowest.bytes_per_s = std::min(slowest.bytes_per_s, kinds_[k].scale_out.bytes_per_s);
    slowest.latency_s = std::max(slowest.latency_s, kinds_[k].scale_out.latency_s);
  }
  for (ClusterSpec& kind : kinds_) kind.scale_out = slowest;
}

UnequalPlanner::Cost UnequalPlanner::measure(const RunPlan& plan, const StepSpec& step, const RunWork& run,
                                             std::vector<size_t> kinds) const {
  const ProgramProfile& profile = profiles_.of("weft", plan.model.has_experts());
  Cost cost{.work = {}, .stage = {.kinds = std::move(kinds)}};
  UnequalStage& s = cost.stage;
  s.ranks = run.mesh.world() / run.mesh.pp;
  for (const size_t k : s.kinds) {
    const DeviceSpec& device = kinds_[k].device;
    StageWork work = work_of_stage(plan, step, kinds_[k]);
    settle_generation(work, profile, device.generation);
    const double seconds = seconds_alone(work, run, profile);
    const bool first = k == s.kinds.front();
    if (first || seconds < s.quickest_s) {
      s.quickest = k;
      s.quickest_s = seconds;
    }
    const double room = device.memory_bytes - usual_reserve(kinds_[k]);
    s.device_bytes = first ? device.memory_bytes : std::min(s.device_bytes, device.memory_bytes);
    s.room_bytes = first ? room : std::min(s.room_bytes, room);
    s.memory_bytes = work.memory_bytes;  // on whichever device
    if (!first && seconds <= s.busy_s) continue;
    s.slowest = k;
    s.busy_s = seconds;
    cost.work = std::move(work);
  }
  return cost;
}

const UnequalPlanner::Cost& UnequalPlanner::cost_of(const Recipe& recipe, const RunPlan& plan, const RunWork& run,
                                                    int stage) {
  const StepSpec step = step_of(recipe, plan, rank_at(run.mesh, {.dp = 0, .pp = stage, .cp = 0, .tp = 0}));
  const std::string key = fmt::format("{} {}", stage, stage_kind(plan, step));
  const auto known = costs_.find(key);
  if (known != costs_.end()) return known->second;
  return costs_.emplace(key, measure(plan, step, run, kinds_of_stage(cluster_, run.mesh, stage))).first->second;
}

// All but what its stages take.
UnequalForecast UnequalPlanner::beginning_of(const Recipe& recipe, const RunPlan& plan) {
  if (!arithmetic_) arithmetic_ = measure_arithmetic(plan.model, plan.step, *plan.optimizer, WorkspaceModel());
  return {.cluster = cluster_,
          .used = used_,
          .work = {.mesh = plan.step.mesh,
                   .pipeline = plan.step.pipeline,
                   .num_micro_batches = plan.step.order.num_micro_batches,
                   .tokens = double(recipe.train.global_batch_size * sequences_of_sample(recipe)) *
                             double(recipe.train.seq_length),
                   .arithmetic = *arithmetic_},
          .profile = profiles_.of("weft", plan.model.has_experts()),
          .blocks = recipe.parallel.pipeline_layout};
}

UnequalForecast UnequalPlanner::forecast(const BlockLayout& blocks) {
  Recipe recipe = recipe_;
  if (!blocks.empty()) recipe.parallel.pipeline_layout = blocks;
  if (has_unequal_shares(recipe.parallel)) return forecast_shares(std::move(recipe));
  const RunPlan plan = forecast_plan(recipe, config_);
  recipe.parallel.pipeline_layout = block_layout_of(recipe, plan.model);
  UnequalForecast f = beginning_of(recipe, plan);
  std::vector<const Cost*> costs;  // a stage is priced without the others
  for (int stage = 0; stage < f.work.mesh.pp; ++stage) costs.push_back(&cost_of(recipe, plan, f.work, stage));
  for (size_t stage = 0; stage < costs.size(); ++stage) {
    f.work.kinds.push_back(costs[stage]->work);
    f.work.kind_of.push_back(int(stage));
    f.stages.push_back(costs[stage]->stage);
  }
  f.step = price_step(f.work, f.profile);
  end_forecast(f, recipe);
  return f;
}

void UnequalPlanner::end_forecast(UnequalForecast& f, const Recipe& recipe) const {
  for (int v = 0; v < f.work.pipeline.num_virtual_stages(); ++v)
    f.stages[size_t(place_of(f.work.pipeline, v).stage)].blocks += f.blocks[size_t(v)];
  const bool f32 = recipe.train.precision == PrecisionChoice::f32;
  f.peak_flops = sum_over(f, [&](const ClusterSpec& kind) { return peak_of(kind, f32); });
}

}  // namespace weft
