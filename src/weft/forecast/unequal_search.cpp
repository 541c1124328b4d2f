#include "weft/forecast/unequal_search.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/forecast/layout_bounds.h"
#include "weft/forecast/search_parts.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

// To look at a layout once more, in any unit, by how much is known of it; and what is looked at at once.
constexpr std::array<int, 4> kEffortOfLook = {1, 64, 64, 256};
constexpr int kEffortOfRound = 2048;
constexpr int kPlanned = 3;  // the last look
// How many layouts are planned whole: of a family until one fits; of all families in turn; of the best family, up to
// kMostBest times; of what is left, unless as many have been planned by then; and while nothing fits.
constexpr size_t kOfFamily = 4, kOfFamilies = 64, kOfBest = 32, kMostPlanned = 128, kMostInVain = 512;
constexpr int kMostBest = 3;
constexpr size_t kMostNearest = 8;

// Layouts that differ in ZeRO, schedule, micro-batch and recomputation. One of each is planned before the others: else
// those of a family whose bounds are far off might use up all that may be planned.
using Family = std::array<int64_t, 4>;
Family family_of(const LayoutChoice& c) { return {c.tp, c.pp, c.cp, c.num_devices()}; }

// Which kinds of devices each stage is on.
using StageKinds = std::vector<std::vector<size_t>>;

// Layouts with the same axes have the same.
struct Spread {
  StageKinds all;                       // of all ranks of dp together
  std::map<StageKinds, int64_t> ranks;  // of one rank of dp: how many ranks of dp have these
};

Spread spread_over(const UnequalCluster& cluster, const MeshSizes& mesh) {
  const auto add = [](std::vector<size_t>& kinds, size_t kind) {
    const auto at = std::lower_bound(kinds.begin(), kinds.end(), kind);
    if (at == kinds.end() || *at != kind) kinds.insert(at, kind);
  };
  const auto num_stages = static_cast<size_t>(mesh.pp);
  Spread spread{.all = StageKinds(num_stages), .ranks = {}};
  for (int dp = 0; dp < mesh.dp; ++dp) {
    StageKinds own(num_stages);
    for (int stage = 0; stage < mesh.pp; ++stage)
      for (int cp = 0; cp < mesh.cp; ++cp)
        for (int tp = 0; tp < mesh.tp; ++tp) {
          const size_t kind = cluster.kind_of(rank_at(mesh, {.dp = dp, .pp = stage, .cp = cp, .tp = tp}));
          add(own[size_t(stage)], kind);
          add(spread.all[size_t(stage)], kind);
        }
    ++spread.ranks[own];
  }
  return spread;
}

// What the first n devices cost and draw.
DevicesUsed used_of(const UnequalCluster& cluster, int64_t n) {
  DevicesUsed used{.devices = n};
  for (const ClusterSpec& kind : cluster.kinds) {
    const int64_t here = std::min<int64_t>(n, kind.num_devices);
    used.price_per_hour += kind.price_per_device_hour * double(here);
    used.watts += kind.device.watts * double(here);
    n -= here;
  }
  return used;
}
double price_of(const ClusterSpec& kind) { return kind.price_per_device_hour; }
double watts_of(const ClusterSpec& kind) { return kind.device.watts; }

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
  // With what ZeRO sends in each micro-batch too, and no more blocks on a stage than it has room for.
  double by_actions(const LayoutChoice& c) {
    std::vector<int64_t> most;
    for (const double room : rooms_of(c)) most.push_back(by_kind_[0].most_blocks(c, int(most.size()), room));
    double part = 1;  // the least of all kinds of devices
    for (LayoutBounds& of_kind : by_kind_) part = std::min(part, of_kind.part_of_blocks(as_one_stage(c)));
    return shared_out(
        c, [](LayoutBounds& of_kind, const LayoutChoice& whole) { return of_kind.by_schedule(whole); }, most, part);
  }
  // Bytes that all stages together lack, however the blocks are cut; at most 0: none that the bounds know of.
  double lacks(const LayoutChoice& c) {
    double room = 0;
    int64_t blocks = 0;
    for (int stage = 0; const double one : rooms_of(c)) {
      room += one;
      blocks += by_kind_[0].most_blocks(c, stage++, one);
    }
    const double all = by_kind_[0].memory(as_one_stage(c));
    const int64_t missing = model().num_layers - blocks;
    return std::max(all - room, all * double(missing) / double(model().num_layers));
  }

 private:
  // What a stage may take: the room on the smallest device that it is on.
  std::vector<double> rooms_of(const LayoutChoice& c) {
    std::vector<double> rooms;
    for (const std::vector<size_t>& kinds : spread_of(c).all) {
      double& smallest = rooms.emplace_back(1e30);
      for (const size_t k : kinds)
        smallest = std::min(smallest, kinds_[k].device.memory_bytes - usual_reserve(kinds_[k]));
    }
    return rooms;
  }
  static LayoutChoice as_one_stage(LayoutChoice c) {
    c.pp = 1;
    c.schedule = ScheduleKind::one_f_one_b;
    c.chunks = 0;
    return c;
  }
  // A pipeline whose stages get of the model what makes them equally long, and in which the first micro-batch passes
  // all stages at the pace of the quickest one at least. Where ranks of dp may have unequal shares of the batch, each
  // gets what makes these pipelines equally long. `most`: blocks of each stage, whose seconds are `part` of all; none:
  // as many as it likes.
  template <class Of>
  double shared_out(const LayoutChoice& c, Of of, const std::vector<int64_t>& most = {}, double part = 0) {
    const LayoutChoice whole = as_one_stage(c);
    std::vector<double> on_kind;  // the step, if one stage had all of it
    for (LayoutBounds& of_kind : by_kind_) on_kind.push_back(of(of_kind, whole));
    double quickest = 1e30;
    const int64_t chunks = make_pipeline(c.schedule, int(c.pp), int(c.chunks)).num_chunks;
    const auto rate_of = [&](const StageKinds& stages) {
      double rate = 0;
      std::vector<double> alone;  // the step, if that stage had all of it
      for (const std::vector<size_t>& stage : stages) {
        double slowest = 0;
        for (const size_t k : stage) slowest = std::max(slowest, on_kind[k]);
        rate += 1 / slowest;
        quickest = std::min(quickest, slowest);
        alone.push_back(slowest * part / double(model().num_layers));
      }
      return most.empty() || part <= 0 ? rate : std::min(rate, 1 / seconds_of_blocks(alone, most, chunks));
    };
    const auto m = double(recipe_.train.global_batch_size / c.micro_batch_size / c.dp);
    const Spread& spread = spread_of(c);
    double rate = 0;
    if (may_have_shares(c) && m > 1)
      for (const auto& [stages, count] : spread.ranks) rate += rate_of(stages) * double(count) / double(c.dp);
    else
      rate = rate_of(spread.all);
    const double even = 1 / rate;
    return even + part_of_bubble(c) * std::max(0.0, quickest - even) / m;
  }
  // What the longest stage takes at least: each has a block in every chunk, and at most `most`, and takes `one` for
  // each.
  double seconds_of_blocks(const std::vector<double>& one, const std::vector<int64_t>& most, int64_t chunks) const {
    std::vector<int64_t> has(one.size(), chunks);
    double longest = *std::max_element(one.begin(), one.end()) * double(chunks);
    for (int64_t left = model().num_layers - chunks * int64_t(one.size()); left > 0; --left) {
      size_t best = one.size();
      for (size_t s = 0; s < one.size(); ++s)
        if (has[s] < most[s] && (best == one.size() || one[s] * double(has[s] + 1) < one[best] * double(has[best] + 1)))
          best = s;
      if (best == one.size()) break;  // there is no room; `lacks` says so
      longest = std::max(longest, one[best] * double(++has[best]));
    }
    return longest;
  }
  static bool may_have_shares(const LayoutChoice& c) { return c.zero_stage < 2 && c.ep == 1; }
  // The part of a bubble of 1F1B that a schedule has at least (schedule/schedule.h).
  static double part_of_bubble(const LayoutChoice& c) {
    if (c.schedule == ScheduleKind::zbv) return 0;
    if (c.schedule == ScheduleKind::zb_h1) return 0.3;  // (F + D - W) / (F + D + W)
    return 1 / double(std::max<int64_t>(1, c.chunks));
  }
  const Spread& spread_of(const LayoutChoice& c) {
    const std::array<int64_t, 4> key{c.dp, c.tp, c.pp, c.cp};
    std::lock_guard lock(mutex_);
    Spread& spread = spreads_[key];
    if (spread.all.empty()) spread = spread_over(cluster_, mesh_sizes_of(with_choice(recipe_, c)));
    return spread;
  }

  const Recipe& recipe_;
  const UnequalCluster& cluster_;
  const std::vector<ClusterSpec> kinds_;
  const ProgramProfile profile_;
  std::deque<SmallRuns> runs_ = {};
  std::deque<LayoutBounds> by_kind_ = {};
  std::mutex mutex_;
  std::map<std::array<int64_t, 4>, Spread> spreads_ = {};
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
    SearchValue aim = {};  // at least
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
    SearchValue aim;
    size_t at;
    UnequalForecast forecast;
    bool operator<(const Kept& o) const { return std::tie(aim, at) < std::tie(o.aim, o.at); }
  };

  struct Tried {
    size_t planned = 0;
    bool one_fits = false;
  };
  using Queue = std::priority_queue<Ahead, std::vector<Ahead>, std::greater<>>;
  // Where a search is.
  struct Course {
    const SearchSpec& spec;
    SearchCounts counts = {};
    std::vector<Kept> best = {};
    Queue queue = {};
    std::vector<Ahead> later = {};
    std::map<Family, Tried> tried = {};
    size_t planned = 0;  // of those, also what does not fit
    bool may_be_better(const Ahead& ahead) const { return best.size() < spec.most || ahead.aim <= best.back().aim; }
  };

  UnequalSearchResult find(const SearchSpec& spec);
  void go_on(Course& course, const Ahead& ahead) const;
  void look_at_all(Course& course, size_t most_planned, bool by_family);
  void look_at_family(Course& course, const Family& family);
  void judge(Course& course, const Ahead& ahead, Seen& seen);
  Seen look(Ahead& ahead, const SearchSpec& spec);
  std::optional<UnequalForecast> plan(const LayoutChoice& layout) const;
  std::string why_none();
  DevicesUsed used_by(const LayoutChoice& c) const { return used_of(cluster_, c.num_devices()); }

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

// With its own cut, or a better one, and with better shares of the batch where its ranks of dp are on unequal devices;
// none where weft cannot run it.
std::optional<UnequalForecast> UnequalSearch::plan(const LayoutChoice& layout) const {
  try {
    const Recipe recipe = checked_recipe(recipe_, layout);
    UnequalPlanner planner(recipe, config_, cluster_, profiles_);
    UnequalForecast now = planner.forecast();
    UnequalForecast strict = now;  // what leaves no room does not fit here
    for (UnequalStage& stage : strict.stages) stage.device_bytes = stage.room_bytes;
    if (auto better = planner.better_cut(strict)) now = std::move(*better);
    const bool is_mixed =
        std::any_of(now.stages.begin(), now.stages.end(), [](const UnequalStage& s) { return s.kinds.size() > 1; });
    if (!is_mixed) return now;
    if (auto shares = planner.better_shares(now)) return std::move(shares->forecast);
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
  if (ahead.looks == 2) ahead.step_s = std::max(ahead.step_s, bounds_.by_actions(layout));
  if (ahead.looks == kPlanned) {
    seen.planned = plan(layout);
    seen.cannot_run = !seen.planned;
    if (seen.planned) ahead.step_s = seen.planned->step.step_s;
    if (seen.planned) seen.lack = lack_of(*seen.planned);
  }
  ++ahead.looks;
  ahead.aim = search_value(spec, ahead.step_s, used_by(layout));
  return seen;
}

void UnequalSearch::go_on(Course& course, const Ahead& ahead) const {
  if (is_too_slow(course.spec, ahead.step_s, used_by(layouts_[ahead.at])))
    ++course.counts.too_slow;
  else
    course.queue.push(ahead);
}

void UnequalSearch::judge(Course& course, const Ahead& ahead, Seen& seen) {
  SearchCounts& counts = course.counts;
  const LayoutChoice& layout = layouts_[ahead.at];
  if (seen.cannot_run) {
    ++counts.cannot_run;
  } else if (seen.lack > 0 || (seen.planned && !leaves_room(*seen.planned))) {
    ++(ahead.looks > kPlanned ? counts.measured_large : counts.too_large);
    too_large_.emplace_back(seen.lack, ahead.at);
  } else if (!seen.planned) {
    go_on(course, ahead);
  } else {
    ++counts.planned;
    course.tried[family_of(layout)].one_fits = true;
    if (is_too_slow(course.spec, ahead.step_s, used_by(layout))) {
      ++counts.too_slow;
      return;
    }
    course.best.push_back({ahead.aim, ahead.at, std::move(*seen.planned)});
    std::sort(course.best.begin(), course.best.end());
    if (course.best.size() > course.spec.most) course.best.pop_back();
  }
}

// The layout that may be the best yet is looked at first, until none can be better than the best. `by_family`: what a
// family has enough of is left for later.
void UnequalSearch::look_at_all(Course& course, size_t most_planned, bool by_family) {
  Queue& queue = course.queue;
  const auto goes_on = [&] {
    return !queue.empty() && course.may_be_better(queue.top()) &&
           (queue.top().looks < kPlanned || course.planned < (course.best.empty() ? kMostInVain : most_planned));
  };
  while (goes_on()) {
    std::vector<Ahead> now;
    for (int effort = 0; effort < kEffortOfRound && goes_on();) {
      const Ahead ahead = queue.top();
      queue.pop();
      if (ahead.looks == kPlanned) {
        Tried& tried = course.tried[family_of(layouts_[ahead.at])];
        if (by_family && (tried.one_fits || tried.planned == kOfFamily)) {
          course.later.push_back(ahead);
          continue;
        }
        ++tried.planned;
        ++course.planned;
      }
      effort += kEffortOfLook[size_t(ahead.looks)];
      now.push_back(ahead);
    }
    std::vector<Seen> all(now.size());
    std::atomic<size_t> next = 0;
    parallel_for(course.spec.threads, course.spec.threads, 1, [&](int64_t, int64_t) {
      for (size_t i = next++; i < now.size(); i = next++) all[i] = look(now[i], course.spec);
    });
    for (size_t i = 0; i < now.size(); ++i) judge(course, now[i], all[i]);
  }
}

void UnequalSearch::look_at_family(Course& course, const Family& family) {
  Queue others = std::exchange(course.queue, {});
  std::vector<Ahead> later;
  for (const Ahead& ahead : course.later)
    if (family_of(layouts_[ahead.at]) == family)
      course.queue.push(ahead);
    else
      later.push_back(ahead);
  course.later = std::move(later);
  look_at_all(course, course.planned + kOfBest, false);
  for (; !course.queue.empty(); course.queue.pop()) others.push(course.queue.top());
  course.queue = std::move(others);
}

UnequalSearchResult UnequalSearch::find(const SearchSpec& spec) {
  Course course{.spec = spec};
  course.counts.layouts = layouts_.size();
  course.counts.refused = refused_;
  too_large_.clear();
  for (size_t i = 0; i < layouts_.size(); ++i) {
    Ahead ahead{.step_s = bounds_.by_arithmetic(layouts_[i]), .at = i};
    ahead.aim = search_value(spec, ahead.step_s, used_by(layouts_[i]));
    go_on(course, ahead);
  }
  look_at_all(course, kOfFamilies, true);
  std::optional<Family> known;
  for (int i = 0; i < kMostBest && !course.best.empty(); ++i) {
    const Family best = family_of(layouts_[course.best[0].at]);
    if (known == best) break;
    look_at_family(course, best);
    known = best;
  }
  for (const Ahead& ahead : course.later) course.queue.push(ahead);
  look_at_all(course, kMostPlanned, false);

  UnequalSearchResult result;
  result.counts = course.counts;
  for (; !course.queue.empty(); course.queue.pop())
    ++(course.may_be_better(course.queue.top()) ? result.not_looked_at : result.counts.beaten);
  for (Kept& kept : course.best) result.best.push_back({layouts_[kept.at], std::move(kept.forecast)});
  return result;
}

std::string UnequalSearch::why_none() {
  if (layouts_.empty()) return usable_text(spec_, recipe_, bounds_.model(), cluster_.kinds[0]);
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
  r.parallel.micro_batches = forecast.shares;
  return r;
}

UnequalSearchResult search_unequal(const Recipe& recipe, const HfConfig& config, const UnequalCluster& cluster,
                                   const Profiles& profiles, const SearchSpec& spec) {
  check_unequal(spec, cluster);
  require_searchable(recipe);
  return UnequalSearch(recipe, config, cluster, profiles, spec).run();
}

}  // namespace weft
