#include "weft/forecast/layout_search.h"

#include <algorithm>
#include <atomic>
#include <queue>
#include <set>
#include <tuple>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/forecast/best_layouts.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/layout_bounds.h"
#include "weft/forecast/layout_planner.h"
#include "weft/forecast/search_parts.h"

namespace weft {
namespace {

constexpr int kDepths = 5;
constexpr std::array<int, kDepths> kEffort = {1, 64, 128, 128, 256};  // to look once more, in any unit
constexpr int kEffortAtOnce = 4096;                                   // however many threads share it
constexpr size_t kNearest = 16;                                       // layouts that are measured where none fits
constexpr double kFrontRooms[] = {1, 0.5};                            // parts of a device's memory

DevicesUsed used_of(const ClusterSpec& cluster, int64_t devices) {
  const double n = double(devices);
  return {.devices = devices, .price_per_hour = cluster.price_per_device_hour * n, .watts = cluster.device.watts * n};
}

// A layout of which so much is known.
struct Candidate {
  SearchValue value = {};  // at least
  double step_s = 0;
  size_t at = 0;  // of the layouts
  int depth = 0;
  bool operator>(const Candidate& o) const { return std::tie(value, at) > std::tie(o.value, o.at); }
};

enum class Fate : uint8_t { goes_on, found, cannot_run, too_large, measured_large };

class Search {
 public:
  Search(const SearchSpec& spec, const ClusterSpec& cluster, LayoutBounds& bounds, LayoutPlanner& planner)
      : spec_(spec), cluster_(cluster), bounds_(bounds), planner_(planner) {}

  // The best that take at most so many bytes of a device, the best first.
  std::vector<FoundLayout> run(const std::vector<LayoutChoice>& layouts, double room);
  SearchCounts counts = {};
  std::vector<std::pair<double, LayoutChoice>> too_large = {};  // those that need least, at least so much

 private:
  DevicesUsed used_by(const LayoutChoice& c) const { return used_of(cluster_, c.num_devices()); }
  struct Look {
    Fate fate = Fate::goes_on;
    double bytes = 0;
    std::optional<FoundLayout> found = {};
  };
  Look look(Candidate& candidate, const LayoutChoice& layout, double room);
  void add_too_large(double bytes, const LayoutChoice& layout);
  void judge(const Candidate& candidate, const LayoutChoice& layout, Look&& look);

  const SearchSpec& spec_;
  const ClusterSpec& cluster_;
  LayoutBounds& bounds_;
  LayoutPlanner& planner_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
  struct Best {
    SearchValue value;
    int64_t bytes;
    size_t at;
    FoundLayout found;
    bool operator<(const Best& o) const { return std::tie(value, bytes, at) < std::tie(o.value, o.bytes, o.at); }
  };
  std::vector<Best> best_;
};

// Looks at it once more.
Search::Look Search::look(Candidate& c, const LayoutChoice& layout, double room) {
  Look look;
  if (c.depth == 0) c.step_s = bounds_.by_stage(layout);
  if (c.depth == 1) {
    look.bytes = bounds_.memory(layout);
    if (look.bytes > room) look.fate = Fate::too_large;
  }
  if (c.depth == 2) c.step_s = bounds_.by_schedule(layout);
  if (c.depth == 3) {
    const std::optional<int64_t> bytes = planner_.first_stage_bytes(layout);
    look.bytes = double(bytes.value_or(0));
    look.fate = !bytes ? Fate::cannot_run : look.bytes > room ? Fate::measured_large : Fate::goes_on;
  }
  if (c.depth == 4) {
    look.found = planner_.plan(layout);
    look.bytes = look.found ? double(look.found->memory_bytes) : 0;
    look.fate = !look.found ? Fate::cannot_run : look.bytes > room ? Fate::measured_large : Fate::found;
  }
  ++c.depth;
  c.value = search_value(spec_, c.step_s, used_by(layout));
  return look;
}

void Search::add_too_large(double bytes, const LayoutChoice& layout) {
  too_large.emplace_back(bytes, layout);
  std::push_heap(too_large.begin(), too_large.end());
  if (too_large.size() <= kNearest) return;
  std::pop_heap(too_large.begin(), too_large.end());
  too_large.pop_back();
}

void Search::judge(const Candidate& c, const LayoutChoice& layout, Look&& look) {
  switch (look.fate) {
    case Fate::cannot_run:
      ++counts.cannot_run;
      return;
    case Fate::too_large:
      ++counts.too_large;
      return add_too_large(look.bytes, layout);
    case Fate::measured_large:
      ++counts.measured_large;
      return add_too_large(look.bytes, layout);
    case Fate::goes_on:
      if (is_too_slow(spec_, c.step_s, used_by(layout)))
        ++counts.too_slow;
      else
        queue_.push(c);
      return;
    case Fate::found:
      break;
  }
  ++counts.planned;
  const double step_s = look.found->step.step_s;
  if (is_too_slow(spec_, step_s, used_by(layout))) {
    ++counts.too_slow;
    return;
  }
  const SearchValue value = search_value(spec_, step_s, used_by(layout));
  best_.push_back({value, look.found->memory_bytes, c.at, std::move(*look.found)});
  std::sort(best_.begin(), best_.end());
  if (best_.size() > spec_.most) best_.pop_back();
}

// The layout that may be the best yet is looked at first, until none can be better than the best.
std::vector<FoundLayout> Search::run(const std::vector<LayoutChoice>& layouts, double room) {
  best_.clear();
  queue_ = {};
  counts.layouts += layouts.size();
  for (size_t i = 0; i < layouts.size(); ++i) {
    Candidate c{.step_s = bounds_.by_arithmetic(layouts[i]), .at = i};
    c.value = search_value(spec_, c.step_s, used_by(layouts[i]));
    judge(c, layouts[i], {});
  }
  const auto may_be_better = [&] {
    return !queue_.empty() && (best_.size() < spec_.most || queue_.top().value <= best_.back().value);
  };
  while (may_be_better()) {
    std::vector<Candidate> now;
    for (int effort = 0; effort < kEffortAtOnce && may_be_better(); effort += kEffort[size_t(now.back().depth)]) {
      now.push_back(queue_.top());
      queue_.pop();
    }
    std::vector<Look> looks(now.size());
    std::atomic<size_t> next = 0;
    parallel_for(spec_.threads, spec_.threads, 1, [&](int64_t, int64_t) {
      for (size_t i = next++; i < now.size(); i = next++) looks[i] = look(now[i], layouts[now[i].at], room);
    });
    for (size_t i = 0; i < now.size(); ++i) judge(now[i], layouts[now[i].at], std::move(looks[i]));
  }
  counts.beaten += queue_.size();
  std::vector<FoundLayout> found;
  for (Best& b : best_) found.push_back(std::move(b.found));
  return found;
}

// At least as good in everything, and better in something; the energy goes with the price.
bool beats(const FoundLayout& a, const FoundLayout& b) {
  const auto figures = [](const FoundLayout& f) {
    const double devices = double(f.layout.num_devices());
    return std::array{f.step.step_s, f.step.step_s * devices, devices, double(f.memory_bytes)};
  };
  const auto x = figures(a), y = figures(b);
  bool better = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] > y[i]) return false;
    better = better || x[i] < y[i];
  }
  return better;
}

std::vector<FoundLayout> front_of(std::vector<FoundLayout> all) {
  std::vector<FoundLayout> front;
  std::set<LayoutChoice> known;
  for (const FoundLayout& one : all)
    if (std::none_of(all.begin(), all.end(), [&](const FoundLayout& other) { return beats(other, one); }) &&
        known.insert(one.layout).second)
      front.push_back(one);
  std::stable_sort(front.begin(), front.end(),
                   [](const FoundLayout& a, const FoundLayout& b) { return a.step.step_s < b.step.step_s; });
  return front;
}

void check(const SearchSpec& spec, const ClusterSpec& cluster) {
  const auto needs = [](bool there, const char* what, const char* missing) {
    if (!there) throw ConfigError(fmt::format("{} needs {}", what, missing));
  };
  const bool priced = cluster.price_per_device_hour > 0;
  needs(priced || spec.objective != SearchObjective::price, "--objective price",
        "a price: price.per_device_hour in the cluster's file");
  needs(priced || spec.budget == 0, "--budget", "a price: price.per_device_hour in the cluster's file");
  needs(cluster.device.watts > 0 || spec.objective != SearchObjective::energy, "--objective energy",
        "the power of a device: device.watts in the cluster's file");
  needs(spec.steps > 0 || (spec.deadline_s == 0 && spec.budget == 0), spec.deadline_s > 0 ? "--deadline" : "--budget",
        "the length of the run: train.train_iters in the recipe");
  WEFT_CHECK(!spec.device_counts.empty() && spec.most > 0 && spec.threads > 0, "an empty search");
  if (cluster.num_devices > 0 && spec.device_counts.back() > cluster.num_devices)
    throw ConfigError(
        fmt::format("a search over {} devices: the cluster has {}", spec.device_counts.back(), cluster.num_devices));
  if (spec.device_counts.back() > cluster.domain && cluster.scale_out.bytes_per_s <= 0)
    throw ConfigError(
        fmt::format("a search over {} devices: scale_out.gb_s, over which more than {} reach each other, "
                    "is missing in the cluster's file",
                    spec.device_counts.back(), cluster.domain));
}

std::string nearest_of(const Search& search, LayoutPlanner& planner, double room) {
  std::optional<FoundLayout> least;
  for (const auto& [bytes, layout] : search.too_large)
    if (const auto one = planner.plan(layout); one && (!least || one->memory_bytes < least->memory_bytes)) least = one;
  if (!least) return "";
  const double gib = double(1 << 30), bytes = double(least->memory_bytes);
  return fmt::format("no layout fits; {} on {} devices comes nearest: {:.1f} of {:.1f} GiB, {:.1f} GiB too much",
                     to_string(least->layout), least->layout.num_devices(), bytes / gib, room / gib,
                     (bytes - room) / gib);
}

}  // namespace

double usual_reserve(const ClusterSpec& cluster) {
  return std::min(2.0 * (1 << 30), 0.05 * cluster.device.memory_bytes);
}

namespace {

void check_recipe(const Recipe& recipe, const ClusterSpec& cluster) {
  if (!cluster.measured.empty())
    throw ConfigError(
        "--search cannot run on a cluster that was measured ([[measured]]): its bounds know no curves, and its room no "
        "memory that ranks share; what works: weft plan RECIPE --cluster FILE for each layout");
  require_searchable(recipe);
}

ProgramProfile profile_for(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                           const Profiles& profiles) {
  const LayoutChoice one_rank{.sequence_parallel = true};
  const RunPlan plan = prepare_run(with_choice(recipe, one_rank), config, 0);
  return program_on(cluster, profiles.of("weft", plan.model.has_experts()));
}

// All layouts of a recipe on the numbers of devices that a search asks for.
class Space {
 public:
  // All must outlive it.
  Space(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster, const Profiles& profiles,
        const SearchSpec& spec, SmallRuns& runs)
      : recipe_(recipe),
        cluster_(cluster),
        spec_(spec),
        profile_(profile_for(recipe, config, cluster, profiles)),
        bounds_(recipe, config, cluster, profile_, runs),
        planner_(recipe, config, cluster, profiles) {
    for (const int64_t n : spec.device_counts) {
      by_count_.push_back(layouts_on(n, recipe, bounds_.model(), cluster, refused_));
      all_.insert(all_.end(), by_count_.back().begin(), by_count_.back().end());
    }
  }

  SearchResult best() {
    SearchResult result;
    result.cluster = cluster_;
    result.room_bytes = cluster_.device.memory_bytes - spec_.reserve_bytes;
    Search search(spec_, cluster_, bounds_, planner_);
    search.counts.refused = refused_;
    result.best = search.run(all_, result.room_bytes);
    result.counts = search.counts;
    for (FoundLayout& found : result.best) found = best_order(found, planner_, cluster_, result.room_bytes);
    const auto value_of = [&](const FoundLayout& f) {
      return search_value(spec_, f.step.step_s, used_of(cluster_, f.layout.num_devices()));
    };
    std::stable_sort(result.best.begin(), result.best.end(),
                     [&](const FoundLayout& a, const FoundLayout& b) { return value_of(a) < value_of(b); });
    if (result.best.empty()) result.nearest = nearest(result.room_bytes);
    return result;
  }

  // What the best lose and leave, and the front.
  void add_reasons(SearchResult& result) {
    for (FoundLayout& found : result.best)
      found.neighbours = why_neighbours_are_worse(found, planner_, cluster_, result.room_bytes);
    std::vector<FoundLayout> near_front = result.best;
    const SearchSpec fastest = fastest_alone();
    for (const auto& layouts : by_count_)
      for (const double part : kFrontRooms) {
        Search one(fastest, cluster_, bounds_, planner_);
        for (FoundLayout& f : one.run(layouts, result.room_bytes * part)) near_front.push_back(std::move(f));
      }
    result.front = front_of(std::move(near_front));
    result.right = right_size(result.best[0], planner_, result.room_bytes);
  }

 private:
  SearchSpec fastest_alone() const {
    SearchSpec fastest = spec_;
    fastest.objective = SearchObjective::time;
    fastest.most = 1;
    return fastest;
  }

  std::string nearest(double room) {
    if (all_.empty()) return usable_text(spec_, recipe_, bounds_.model(), cluster_);
    SearchSpec fastest = fastest_alone();
    fastest.deadline_s = fastest.budget = 0;
    Search any(fastest, cluster_, bounds_, planner_);
    const auto there = any.run(all_, room);
    if (there.empty()) return nearest_of(any, planner_, room);
    const double steps = double(spec_.steps);
    return fmt::format(
        "no layout keeps deadline and budget; the fastest, {} on {} devices, takes {:.4g} h and costs {:.4g}",
        to_string(there[0].layout), there[0].layout.num_devices(), there[0].step.step_s * steps / 3600,
        there[0].price * steps);
  }

  const Recipe& recipe_;
  const ClusterSpec& cluster_;
  const SearchSpec& spec_;
  const ProgramProfile profile_;
  LayoutBounds bounds_;
  LayoutPlanner planner_;
  std::vector<std::vector<LayoutChoice>> by_count_ = {};
  std::vector<LayoutChoice> all_ = {};
  int64_t refused_ = 0;
};

}  // namespace

SearchResult search_layouts(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                            const Profiles& profiles, const SearchSpec& spec) {
  check(spec, cluster);
  check_recipe(recipe, cluster);
  SmallRuns runs;
  Space space(recipe, config, cluster, profiles, spec, runs);
  SearchResult result = space.best();
  if (!result.best.empty()) space.add_reasons(result);
  return result;
}

SearchResult best_layouts(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                          const Profiles& profiles, const SearchSpec& spec) {
  SmallRuns runs;
  return best_layouts(recipe, config, cluster, profiles, spec, runs);
}

SearchResult best_layouts(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                          const Profiles& profiles, const SearchSpec& spec, SmallRuns& known) {
  check(spec, cluster);
  check_recipe(recipe, cluster);
  return Space(recipe, config, cluster, profiles, spec, known).best();
}

}  // namespace weft
