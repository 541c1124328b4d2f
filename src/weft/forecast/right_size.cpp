// What layouts leave unused, and in which order their ranks lie best.
#include <algorithm>
#include <array>
#include <set>

#include "weft/base/error.h"
#include "weft/forecast/layout_planner.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

constexpr double kGiBUnused = double(1 << 30);
constexpr double kAsGood = 1.05;     // times the step, which fewer devices may take
constexpr double kMustGain = 0.999;  // of a step, which another order must take at most

std::optional<FoundLayout> half_of(const FoundLayout& found, LayoutPlanner& planner, double room) {
  std::optional<FoundLayout> best;
  for (int64_t LayoutChoice::*axis : {&LayoutChoice::dp, &LayoutChoice::tp, &LayoutChoice::pp, &LayoutChoice::cp}) {
    LayoutChoice c = found.layout;
    if (c.*axis % 2 != 0) continue;
    c.*axis /= 2;
    if (c.dp * c.cp % c.ep != 0) c.ep /= 2;
    const auto one = planner.plan(settled(c));
    if (!one || double(one->memory_bytes) > room) continue;
    if (!best || one->step.step_s < best->step.step_s) best = one;
  }
  return best;
}

// How many ranks of each axis lie in a domain: equal where two orders are alike to every link.
std::vector<int64_t> spreads_of(const LayoutChoice& c, const std::array<std::string, 4>& axes, int64_t domain) {
  std::vector<int64_t> all;
  for (const std::string name : {"tp", "cp", "dp", "pp"}) {
    int64_t before = 1, size = 1;
    for (const std::string& axis : axes) {
      size = axis == "tp" ? c.tp : axis == "cp" ? c.cp : axis == "dp" ? c.dp : c.pp;
      if (axis == name) break;
      before *= size;
    }
    all.push_back(std::clamp<int64_t>(domain / before, 1, size));
  }
  return all;
}

}  // namespace

RightSize right_size(const FoundLayout& found, LayoutPlanner& planner, double room) {
  RightSize right{.unused_bytes = std::max(0.0, room - double(found.memory_bytes))};
  right.half = half_of(found, planner, room);
  for (std::optional<FoundLayout> now = right.half; now && now->step.step_s <= kAsGood * found.step.step_s;
       now = half_of(*now, planner, room))
    right.enough = now;
  return right;
}

std::string to_string(const RightSize& right, const FoundLayout& found, double room) {
  std::string text =
      fmt::format("{:.1f} of {:.1f} GiB of each device", right.unused_bytes / kGiBUnused, room / kGiBUnused);
  const auto times = [&](const FoundLayout& f) { return f.step.step_s / found.step.step_s; };
  if (right.enough) {
    const FoundLayout& f = *right.enough;
    const double devices = double(f.layout.num_devices()) / double(found.layout.num_devices());
    return text + fmt::format(" and most of the devices: {} take {:.3g} x as long, for {:.3g} of the device-hours ({})",
                              f.layout.num_devices(), times(f), times(f) * devices, to_string(f.layout));
  }
  if (right.half)
    return text +
           fmt::format("; {} devices take {:.3g} x as long", right.half->layout.num_devices(), times(*right.half));
  return text + (found.layout.num_devices() > 1 ? "; half of the devices would not do" : "");
}

FoundLayout best_order(const FoundLayout& found, LayoutPlanner& planner, const ClusterSpec& cluster, double room) {
  if (found.layout.num_devices() <= cluster.domain) return found;  // all links are alike
  std::array<std::string, 4> axes = {"cp", "dp", "pp", "tp"};
  std::set<std::vector<int64_t>> tried;
  FoundLayout best = found;
  do {
    if (!tried.insert(spreads_of(found.layout, axes, cluster.domain)).second) continue;
    LayoutChoice c = found.layout;
    c.order.clear();
    for (const std::string& axis : axes)
      c.order += (c.order.empty() ? "" : "-") + (axis == "dp" ? std::string("ep-dp") : axis);
    const auto one = planner.plan(c);
    if (one && double(one->memory_bytes) <= room && one->step.step_s < kMustGain * best.step.step_s) best = *one;
  } while (std::next_permutation(axes.begin(), axes.end()));
  return best;
}

}  // namespace weft
