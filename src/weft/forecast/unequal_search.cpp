#include "weft/forecast/unequal_search.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <queue>
#include <tuple>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/forecast/layout_bounds.h"
#include "weft/forecast/search_parts.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

// To look at a layout once more, in any unit, by how much is known of it; and what is looked at at once.
constexpr std::array<int, 3> kEffortOfLook = {1, 64, 256};
constexpr int kEffortOfRound = 2048;
constexpr int kPlanned = 2;                             // the last look
constexpr size_t kMostPlanned = 64, kMostInVain = 256;  // whole: with a layout that fits, and without
constexpr size_t kMostNearest = 8;
constexpr int64_t kMostLeftOver = 64;  // devices

// Which kinds of devices each stage is on; the same for layouts with these axes.
using StageKinds = std::vector<std::vector<size_t>>;

StageKinds kinds_of_stages(const UnequalCluster& cluster, const MeshSizes& mesh) {
  StageKinds all(static_cast<size_t>(mesh.pp));
  for (int stage = 0; stage < mesh.pp; ++stage) {
    std::vector<bool> has(cluster.kinds.size(), false);
    for (int dp = 0; dp < mesh.dp; ++dp)
      for (int cp = 0; cp < mesh.cp; ++cp)
        for (int tp = 0; tp < mesh.tp; ++tp)
          has[cluster.kind_of(rank_at(mesh, {.dp = dp, .pp = stage, .cp = cp, .tp = tp}))] = true;
    for (size_t k = 0; k < has.size(); ++k)
      if (has[k]) all[size_t(stage)].push_back(k);
  }
  return all;
}

// What is minimised, in this order.
using Aim = std::array<double, 2>;

// What the first n devices cost and draw.
double sum_of_first(const UnequalCluster& cluster, int64_t n, double (*of)(const ClusterSpec&)) {
  double sum = 0;
  for (const ClusterSpec& kind : cluster.kinds) {
    const int64_t here = std::min<int64_t>(n, kind.num_devices);
    sum += of(kind) * double(here);
    n -= here;
  }
  return sum;
}
double price_of(const ClusterSpec& kind) { return kind.price_per_device_hour; }
double watts_of(const ClusterSpec& kind) { return kind.device.watts; }

Aim aim_of(const SearchSpec& spec, const UnequalCluster& cluster, double step_s, int64_t devices) {
  switch (spec.objective) {
    case SearchObjective::time:
      return {step_s, double(devices)};
    case SearchObjective::price:
      return {sum_of_first(cluster, devices, price_of) / 3600 * step_s, step_s};
    case SearchObjective::energy:
      return {sum_of_first(cluster, devices, watts_of) * step_s, step_s};
    case SearchObjective::ranks:
      break;
  }
  return {double(devices), step_s};
}

void check_unequal(const SearchSpec& spec, const UnequalCluster& cluster) {
  const auto all_have = [&](double (*of)(const ClusterSpec&)) {
    return std::all_of(cluster.kinds.begin(), cluster.kinds.end(), [&](const ClusterSpec& k) { return of(k) > 0; });
  };
  const auto needs = [](bool there, const char* what, const char* missing) {
    if (!there) throw ConfigError(fmt::format("{} needs {}", what, missing));
  };
  const char* const price = "a price of every kind of node: price.per_device_hour in the cluster's file";
  needs(spec.objective != SearchObjective::price || all_have(price_of), "--objective price", price);
  needs(spec.budget == 0 || all_have(price_of), "--budget", price);
  needs(spec.objective != SearchObjective::energy || all_have(watts_of), "--objective energy",
        "the power of every kind of device: device.watts in the cluster's file");
  needs(spec.steps > 0 || (spec.deadline_s == 0 && spec.budget == 0), spec.deadline_s > 0 ? "--deadline" : "--budget",
        "the length of the run: train.train_iters in the recipe");
  WEFT_CHECK(!spec.device_counts.empty() && spec.most > 0 && spec.threads > 0, "an empty search");
  if (spec.device_counts.back() > cluster.num_devices())
    throw ConfigError(
        fmt::format("a search over {} devices: the cluster has {}", spec.device_counts.back(), cluster.num_devices()));
}

// The kinds as bounds take them: with the fastest links among nodes, which no layout's are better than.
std::vector<ClusterSpec> kinds_at_best(const UnequalCluster& cluster) {
  LinkSpec fastest = cluster.kinds[0].scale_out;
  for (const ClusterSpec& kind : cluster.kinds) {
    fastest.bytes_per_s = std::max(fastest.bytes_per_s, kind.scale_out.bytes_per_s);
    fastest.latency_s = std::min(fastest.latency_s, kind.scale_out.latency_s);
  }
  std::vector<ClusterSpec> kinds = cluster.kinds;
  for (ClusterSpec& kind : kinds) kind.scale_out = fastest;
  return kinds;
}

// What layouts take at least, however their blocks are cut: by the bounds of a stage that has the whole model, on each
// kind of device.
class UnequalBounds {
 public:
  UnequalBounds(const Recipe& recipe, const HfConfig& config, const UnequalCluster& cluster, const Profiles& profiles)
      : recipe_(recipe),
        cluster_(cluster),
        kinds_(kinds_at_best(cluster)),
        profile_(profiles.of(
            "weft", prepare_run(with_choice(recipe, {.sequence_parallel = true}), config, 0).model.has_experts())) {
    for (const ClusterSpec& kind : kinds_) by_kind_.emplace_back(recipe, config, kind, profile_, runs_.emplace_back());
  }
  const ModelSpec& model() const { return by_kind_[0].model(); }

  double by_arithmetic(const LayoutChoice& c) {
    return shared_out(c,
                      [&](LayoutBounds& of_kind, const LayoutChoice& whole) { return of_kind.by_arithmetic(whole); });
  }
  double by_stages(const LayoutChoice& c) {
    return shared_out(c, [&](LayoutBounds& of_kind, const LayoutChoice& whole) { return of_kind.by_stage(whole); });
  }
  // Bytes that all stages together lack; at most 0: none that the bound knows of.
  double lacks(const LayoutChoice& c) {
    double room = 0;
    for (const std::vector<size_t>& stage : stages_of(c)) {
      double smallest = 1e30;
      for (const size_t k : stage)
        smallest = std::min(smallest, kinds_[k].device.memory_bytes - usual_reserve(kinds_[k]));
      room += smallest;
    }
    return by_kind_[0].memory(as_one_stage(c)) - room;
  }

 private:
  static LayoutChoice as_one_stage(LayoutChoice c) {
    c.pp = 1;
    c.schedule = ScheduleKind::one_f_one_b;
    c.chunks = 0;
    return c;
  }
  // A pipeline whose stages get of the model what makes them equally long, and in which the first micro-batch passes
  // all stages at the pace of the quickest one at least.
  template <class Of>
  double shared_out(const LayoutChoice& c, Of of) {
    const LayoutChoice whole = as_one_stage(c);
    std::vector<double> on_kind;  // the step, if one stage had all of it
    for (LayoutBounds& of_kind : by_kind_) on_kind.push_back(of(of_kind, whole));
    double rate = 0, quickest = 1e30;
    for (const std::vector<size_t>& stage : stages_of(c)) {
      double slowest = 0;
      for (const size_t k : stage) slowest = std::max(slowest, on_kind[k]);
      rate += 1 / slowest;
      quickest = std::min(quickest, slowest);
    }
    const double even = 1 / rate;
    const auto m = double(recipe_.train.global_batch_size / c.micro_batch_size / c.dp);
    return even + part_of_bubble(c) * std::max(0.0, quickest - even) / m;
  }
  // The part of a bubble of 1F1B that a schedule has at least (schedule/schedule.h).
  static double part_of_bubble(const LayoutChoice& c) {
    if (c.schedule == ScheduleKind::zbv) return 0;
    if (c.schedule == ScheduleKind::zb_h1) return 0.3;  // (F + D - W) / (F + D + W)
    return 1 / double(std::max<int64_t>(1, c.chunks));
  }
  const StageKinds& stages_of(const LayoutChoice& c) {
    const std::array<int64_t, 4> key{c.dp, c.tp, c.pp, c.cp};
    std::lock_guard lock(mutex_);
    StageKinds& stages = stages_[key];
    if (stages.empty()) stages = kinds_of_stages(cluster_, mesh_sizes_of(with_choice(recipe_, c)));
    return stages;
  }

  const Recipe& recipe_;
  const UnequalCluster& cluster_;
  const std::vector<ClusterSpec> kinds_;
  const ProgramProfile profile_;
  std::deque<SmallRuns> runs_ = {};
  std::deque<LayoutBounds> by_kind_ = {};
  std::mutex mutex_;
  std::map<std::array<int64_t, 4>, StageKinds> stages_ = {};
};

bool leaves_room(const UnequalForecast& f) {
  return std::all_of(f.stages.begin(), f.stages.end(), [](const UnequalStage& s) { return s.has_room(); });
}

// The most that a stage lacks.
double lack_of(const UnequalForecast& f) {
  double most = 0;
  for (const UnequalStage& s : f.stages) most = std::max(most, double(s.memory_bytes) - s.room_bytes);
  return most;
}

class UnequalSearch {
 public:
  UnequalSearch(const Recipe& recipe, const HfConfig& config, const UnequalCluster& cluster, const Profiles& profiles,
                const SearchSpec& spec)
      : recipe_(recipe),
        config_(config),
        cluster_(cluster),
        profiles_(profiles),
        spec_(spec),
        bounds_(recipe, config, cluster, profiles) {
    for (const int64_t n : spec.device_counts)
      for (LayoutChoice& c : layouts_on(n, recipe, bounds_.model(), cluster.kinds[0], refused_))
        layouts_.push_back(std::move(c));
  }

  UnequalSearchResult run() {
    UnequalSearchResult result = find(spec_);
    if (result.best.empty()) result.nearest = why_none();
    return result;
  }

 private:
  struct Ahead {
    Aim aim = {};  // at least
    double step_s = 0;
    size_t at = 0;  // of the layouts
    int looks = 0;
    bool operator>(const Ahead& o) const { return std::tie(aim, at) > std::tie(o.aim, o.at); }
  };
  struct Seen {
    double lack = 0;
    std::optional<UnequalForecast> planned = {};
    bool cannot_run = false;
  };
  struct Kept {
    Aim aim;
    size_t at;
    UnequalForecast forecast;
    bool operator<(const Kept& o) const { return std::tie(aim, at) < std::tie(o.aim, o.at); }
  };

  UnequalSearchResult find(const SearchSpec& spec);
  Seen look(Ahead& ahead, const SearchSpec& spec);
  std::optional<UnequalForecast> plan(const LayoutChoice& layout) const;
  std::string why_none();
  bool is_too_slow(double step_s, int64_t devices, const SearchSpec& spec) const {
    const double run_s = step_s * double(spec.steps);
    return (spec.deadline_s > 0 && run_s > spec.deadline_s) ||
           (spec.budget > 0 && run_s / 3600 * sum_of_first(cluster_, devices, price_of) > spec.budget);
  }

  const Recipe& recipe_;
  const HfConfig& config_;
  const UnequalCluster& cluster_;
  const Profiles& profiles_;
  const SearchSpec& spec_;
  UnequalBounds bounds_;
  std::vector<LayoutChoice> layouts_ = {};
  int64_t refused_ = 0;
  std::vector<std::pair<double, size_t>> too_large_ = {};  // what they lack at least, and which
};

// Its own cut, or a better one; none where weft cannot run it.
std::optional<UnequalForecast> UnequalSearch::plan(const LayoutChoice& layout) const {
  try {
    const Recipe recipe = checked_recipe(recipe_, layout);
    UnequalPlanner planner(recipe, config_, cluster_, profiles_);
    UnequalForecast now = planner.forecast();
    UnequalForecast strict = now;  // what leaves no room does not fit here
    for (UnequalStage& stage : strict.stages) stage.device_bytes = stage.room_bytes;
    if (auto better = planner.better_cut(strict)) return better;
    return now;
  } catch (const ConfigError&) {
  } catch (const PlacementError&) {}
  return {};
}

UnequalSearch::Seen UnequalSearch::look(Ahead& ahead, const SearchSpec& spec) {
  const LayoutChoice& layout = layouts_[ahead.at];
  Seen seen;
  if (ahead.looks == 0) seen.lack = bounds_.lacks(layout);
  if (ahead.looks == 1) ahead.step_s = std::max(ahead.step_s, bounds_.by_stages(layout));
  if (ahead.looks == kPlanned) {
    seen.planned = plan(layout);
    seen.cannot_run = !seen.planned;
    if (seen.planned) ahead.step_s = seen.planned->step.step_s;
    if (seen.planned) seen.lack = lack_of(*seen.planned);
  }
  ++ahead.looks;
  ahead.aim = aim_of(spec, cluster_, ahead.step_s, layout.num_devices());
  return seen;
}

// The layout that may be the best yet is looked at first, until none can be better than the best.
UnequalSearchResult UnequalSearch::find(const SearchSpec& spec) {
  UnequalSearchResult result;
  SearchCounts& counts = result.counts;
  counts.layouts = layouts_.size();
  counts.refused = refused_;
  too_large_.clear();
  std::vector<Kept> best;
  std::priority_queue<Ahead, std::vector<Ahead>, std::greater<>> queue;
  const auto go_on = [&](const Ahead& ahead) {
    if (is_too_slow(ahead.step_s, layouts_[ahead.at].num_devices(), spec))
      ++counts.too_slow;
    else
      queue.push(ahead);
  };
  for (size_t i = 0; i < layouts_.size(); ++i) {
    Ahead ahead{.step_s = bounds_.by_arithmetic(layouts_[i]), .at = i};
    ahead.aim = aim_of(spec, cluster_, ahead.step_s, layouts_[i].num_devices());
    go_on(ahead);
  }
  size_t planned = 0;
  const auto may_be_better = [&] {
    return !queue.empty() && (best.size() < spec.most || queue.top().aim <= best.back().aim) &&
           (queue.top().looks < kPlanned || planned < (best.empty() ? kMostInVain : kMostPlanned));
  };
  while (may_be_better()) {
    std::vector<Ahead> now;
    for (int effort = 0; effort < kEffortOfRound && may_be_better();
         effort += kEffortOfLook[size_t(now.back().looks)]) {
      now.push_back(queue.top());
      queue.pop();
      if (now.back().looks == kPlanned) ++planned;
    }
    std::vector<Seen> all(now.size());
    std::atomic<size_t> next = 0;
    parallel_for(spec.threads, spec.threads, 1, [&](int64_t, int64_t) {
      for (size_t i = next++; i < now.size(); i = next++) all[i] = look(now[i], spec);
    });
    for (size_t i = 0; i < now.size(); ++i) {
      Seen& seen = all[i];
      const bool is_planned = now[i].looks > kPlanned;
      if (seen.cannot_run) {
        ++counts.cannot_run;
      } else if (seen.lack > 0 || (seen.planned && !leaves_room(*seen.planned))) {
        ++(is_planned ? counts.measured_large : counts.too_large);
        too_large_.emplace_back(seen.lack, now[i].at);
      } else if (!seen.planned) {
        go_on(now[i]);
      } else {
        ++counts.planned;
        if (is_too_slow(now[i].step_s, layouts_[now[i].at].num_devices(), spec)) {
          ++counts.too_slow;
          continue;
        }
        best.push_back({now[i].aim, now[i].at, std::move(*seen.planned)});
        std::sort(best.begin(), best.end());
        if (best.size() > spec.most) best.pop_back();
      }
    }
  }
  for (; !queue.empty(); queue.pop())
    ++(best.size() < spec.most || queue.top().aim <= best.back().aim ? result.not_looked_at : counts.beaten);
  for (Kept& kept : best) result.best.push_back({layouts_[kept.at], std::move(kept.forecast)});
  return result;
}

std::string UnequalSearch::why_none() {
  const int64_t most = spec_.device_counts.back();
  if (layouts_.empty()) {
    for (int64_t n = most - 1, ignored = 0; n >= std::max<int64_t>(1, most - kMostLeftOver); --n)
      if (!layouts_on(n, recipe_, bounds_.model(), cluster_.kinds[0], ignored).empty())
        return fmt::format(
            "no layout is of {} devices: the batch of {} sequences and the model cannot be cut so; {} can be used, and "
            "{} left over",
            most, recipe_.train.global_batch_size, n, most - n);
    return fmt::format("no layout is of {} devices: the batch of {} sequences and the model cannot be cut so", most,
                       recipe_.train.global_batch_size);
  }
  if (spec_.deadline_s > 0 || spec_.budget > 0) {
    SearchSpec fastest = spec_;
    fastest.objective = SearchObjective::time;
    fastest.most = 1;
    fastest.deadline_s = fastest.budget = 0;
    if (const UnequalSearchResult any = find(fastest); !any.best.empty()) {
      const UnequalForecast& f = any.best[0].forecast;
      return fmt::format(
          "no layout keeps deadline and budget; the fastest, {} on {} devices, takes {} and costs {:.4g}",
          to_string(any.best[0].layout), f.num_devices(), duration_text(f.step.step_s * double(spec_.steps)),
          f.price_per_step() * double(spec_.steps));
    }
  }
  std::sort(too_large_.begin(), too_large_.end());
  std::optional<UnequalLayout> least;
  for (size_t i = 0; i < std::min(kMostNearest, too_large_.size()); ++i) {
    const LayoutChoice& layout = layouts_[too_large_[i].second];
    auto f = plan(layout);
    if (f && (!least || lack_of(*f) < lack_of(least->forecast))) least = {layout, std::move(*f)};
  }
  if (!least) return "no layout can run";
  return fmt::format("no layout fits; {} on {} devices comes nearest: a stage lacks {:.1f} GiB",
                     to_string(least->layout), least->layout.num_devices(), lack_of(least->forecast) / double(1 << 30));
}

}  // namespace

Recipe UnequalLayout::applied_to(const Recipe& recipe) const {
  Recipe r = with_choice(recipe, layout);
  if (layout.pp > 1) r.parallel.pipeline_layout = forecast.blocks;
  return r;
}

UnequalSearchResult search_unequal(const Recipe& recipe, const HfConfig& config, const UnequalCluster& cluster,
                                   const Profiles& profiles, const SearchSpec& spec) {
  check_unequal(spec, cluster);
  require_searchable(recipe);
  return UnequalSearch(recipe, config, cluster, profiles, spec).run();
}

}  // namespace weft
