// What a layout's neighbours lose.
#include <algorithm>

#include "weft/base/error.h"
#include "weft/forecast/layout_planner.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

constexpr double kBytesInGiB = double(1 << 30);
constexpr size_t kMostNeighbours = 3;  // in a sentence

struct Neighbour {
  std::string key, value;  // "tp", "16"
  LayoutChoice layout;
  std::string what() const { return fmt::format("{} = {}", key, value); }
};

// The axis twice or half as large, and dp the other way.
void add_axis(const LayoutChoice& from, const char* name, int64_t LayoutChoice::*axis, std::vector<Neighbour>& all) {
  const auto add = [&](int64_t size, int64_t dp) {
    LayoutChoice c = from;
    c.*axis = size;
    c.dp = dp;
    c.zero_shard_size = 0;
    c.sequence_parallel = c.tp > 1;
    all.push_back({name, std::to_string(size), settled(c)});
  };
  if (from.*axis % 2 == 0) add(from.*axis / 2, from.dp * 2);
  if (from.dp % 2 == 0) add(from.*axis * 2, from.dp / 2);
}

std::vector<Neighbour> neighbours_of(const LayoutChoice& c) {
  std::vector<Neighbour> all;
  add_axis(c, "tp", &LayoutChoice::tp, all);
  add_axis(c, "pp", &LayoutChoice::pp, all);
  add_axis(c, "cp", &LayoutChoice::cp, all);
  const auto add = [&](const char* key, const std::string& value, auto change) {
    LayoutChoice other = c;
    change(other);
    if (other != c) all.push_back({key, value, other});
  };
  for (const int64_t size : {c.micro_batch_size * 2, c.micro_batch_size / 2})
    if (size > 0) add("micro_batch_size", std::to_string(size), [&](auto& o) { o.micro_batch_size = size; });
  for (const RecomputeKind kind : {RecomputeKind::none, RecomputeKind::selective, RecomputeKind::full})
    add("recompute", fmt::format("\"{}\"", kind), [&](auto& o) { o.recompute = kind; });
  for (int64_t stage = 0; stage < 4 && c.dp * c.cp > 1; ++stage)
    add("zero_stage", std::to_string(stage), [&](auto& o) {
      o.zero_stage = stage;
      if (stage != c.zero_stage) o.zero_shard_size = 0;
    });
  if (c.pp > 1)
    add("pipeline_schedule", "\"1f1b\"", [](auto& o) {
      o.schedule = ScheduleKind::one_f_one_b;
      o.chunks = 0;
    });
  if (c.pp > 1)
    add("pipeline_schedule", "\"zb_h1\"", [](auto& o) {
      o.schedule = ScheduleKind::zb_h1;
      o.chunks = 0;
    });
  if (c.ep > 1) add("ep", std::to_string(c.ep / 2), [](auto& o) { o.ep /= 2; });
  if (c.dp * c.cp % (2 * c.ep) == 0) add("ep", std::to_string(c.ep * 2), [](auto& o) { o.ep *= 2; });
  return all;
}

std::string amount_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

// The part of a step that grew most, and by how much: "190 ms exposed tp".
std::string largest_growth(const StepForecast& from, const StepForecast& to) {
  std::vector<std::pair<double, std::string>> parts;
  for (int c = 0; c < kWorkClasses; ++c)
    parts.emplace_back(to.compute_s[size_t(c)] - from.compute_s[size_t(c)], name_of(WorkClass(c)));
  parts.emplace_back(to.launch_s - from.launch_s, "launches");
  parts.emplace_back(to.bubble_s - from.bubble_s, "bubble");
  parts.emplace_back(to.slowdown_s - from.slowdown_s, "slowed by communication");
  for (const auto& [axis, seconds] : to.exposed_s) {
    const auto before = from.exposed_s.find(axis);
    parts.emplace_back(seconds - (before == from.exposed_s.end() ? 0 : before->second), "exposed " + axis);
  }
  const auto most =
      std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return fmt::format("{} {}", amount_text(most->first), most->second);
}

bool is_inside(const LayoutChoice& c, const char* axis, const MeshSizes& like, int domain) {
  MeshSizes mesh = like;
  mesh.dp = int(c.dp);
  mesh.pp = int(c.pp);
  mesh.cp = int(c.cp);
  mesh.tp = int(c.tp);
  mesh.ep = int(c.ep);
  mesh.shards = 1;
  return spread_of(mesh, axis, domain).is_inside();
}

}  // namespace

std::vector<WorseNeighbour> worse_neighbours(const FoundLayout& found, LayoutPlanner& planner,
                                             const ClusterSpec& cluster, double room) {
  std::vector<WorseNeighbour> all;
  for (const Neighbour& n : neighbours_of(found.layout)) {
    const std::optional<FoundLayout> other = planner.plan(n.layout);
    if (!other) continue;
    if (const double bytes = double(other->memory_bytes); bytes > room) {
      all.push_back(
          {n.key, false, bytes,
           fmt::format("{} does not fit: {:.1f} of {:.1f} GiB", n.what(), bytes / kBytesInGiB, room / kBytesInGiB)});
      continue;
    }
    const double by = other->step.step_s - found.step.step_s;
    if (by <= 0) continue;
    const bool leaves = n.layout.tp > found.layout.tp && is_inside(found.layout, "tp", {}, cluster.domain) &&
                        !is_inside(n.layout, "tp", {}, cluster.domain);
    all.push_back({n.key, true, by,
                   fmt::format("{}{}: +{} a step (+{})", n.what(),
                               !leaves                                      ? ""
                               : cluster.domain == cluster.devices_per_node ? " leaves the node"
                                                                            : " leaves the domain",
                               amount_text(by), largest_growth(found.step, other->step))});
  }
  std::stable_sort(all.begin(), all.end(), [](const WorseNeighbour& a, const WorseNeighbour& b) {
    return a.fits != b.fits ? a.fits : a.by < b.by;
  });
  return all;
}

std::optional<BetterNeighbour> best_neighbour(const FoundLayout& from, LayoutPlanner& planner, double room) {
  std::optional<BetterNeighbour> best;
  for (const Neighbour& n : neighbours_of(from.layout)) {
    const std::optional<FoundLayout> other = planner.plan(n.layout);
    if (!other || double(other->memory_bytes) > room) continue;
    const double by = from.step.step_s - other->step.step_s;
    if (by <= 0 || (best && other->step.step_s >= best->found.step.step_s)) continue;
    best = {n.key, *other,
            fmt::format("{}: -{} a step (-{})", n.what(), amount_text(by), largest_growth(other->step, from.step))};
  }
  return best;
}

std::string why_neighbours_are_worse(const FoundLayout& found, LayoutPlanner& planner, const ClusterSpec& cluster,
                                     double room) {
  const std::vector<WorseNeighbour> all = worse_neighbours(found, planner, cluster, room);
  const auto larger = std::find_if(all.begin(), all.end(), [](const WorseNeighbour& w) { return !w.fits; });
  std::string text;
  size_t count = 0;
  const auto say = [&](const WorseNeighbour& w) {
    if (count++ < kMostNeighbours) text += (text.empty() ? "" : "; ") + w.text;
  };
  if (larger != all.end()) say(*larger);
  for (auto w = all.begin(); w != larger; ++w) say(*w);
  if (larger != all.end())
    for (auto w = larger + 1; w != all.end(); ++w) say(*w);
  return text.empty() ? "none of them can run" : text;
}

}  // namespace weft
