#include "weft/forecast/scaling.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "weft/base/error.h"
#include "weft/plan/layout.h"
#include "weft/schedule/shares.h"

namespace weft {
namespace {

constexpr int kBarColumns = 30;
constexpr double kSmallLoss = 0.002;  // of a step: less is no cause

std::map<std::string, double> waits_of(const StepForecast& step) {
  std::map<std::string, double> waits = {
      {"bubble", step.bubble_s}, {"computation slowed by communication", step.slowdown_s}, {"launches", step.launch_s}};
  for (const auto& [axis, seconds] : step.exposed_s) {
    // The ranks that sum gradients have other names where they are all of a data axis.
    const bool data =
        axis == "dp" || axis == "dp_cp" || axis == "shards" || axis == "replicas" || axis == "frozen_shards";
    waits[data ? "exposed dp" : fmt::format("exposed {}", axis)] += seconds;
  }
  return waits;
}

// "exposed dp: +0.21 s".
std::string cause_of(const StepForecast& now, const StepForecast& first) {
  const auto before = waits_of(first);
  std::string cause;
  double most = kSmallLoss * now.step_s;
  for (const auto& [name, seconds] : waits_of(now)) {
    const auto found = before.find(name);
    const double more = seconds - (found == before.end() ? 0 : found->second);
    if (more <= most) continue;
    most = more;
    cause = fmt::format("{}: +{:.4g} s", name, more);
  }
  return cause;
}

}  // namespace

DeviceRange device_range(const std::string& text) {
  const size_t dots = text.find("..");
  const auto number = [&](const std::string& part) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < 1 || value > kMostRanks)
      throw ConfigError(
          fmt::format("\"{}\" is no range of devices: 8..1024, or a number from 1 to {}", text, kMostRanks));
    return value;
  };
  if (dots == std::string::npos) return {number(text), number(text)};
  const DeviceRange range{number(text.substr(0, dots)), number(text.substr(dots + 2))};
  if (range.low > range.high)
    throw ConfigError(fmt::format("\"{}\" is no range of devices: it ends before it begins", text));
  return range;
}

std::vector<ScalePoint> scale(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                              const Profiles& profiles, DeviceRange range) {
  if (has_unequal_shares(recipe.parallel))
    throw ConfigError(
        fmt::format("--scale cannot run with parallel.micro_batches = {}: it says what as many ranks of dp have as the "
                    "recipe has, and not what more would; the nearest that works: parallel.micro_batches=[]",
                    text_of_shares(recipe.parallel.micro_batches)));
  const MeshSizes mesh = mesh_sizes_of(recipe);
  const int64_t copy = int64_t(mesh.tp) * mesh.pp * mesh.cp, each = recipe.train.global_batch_size / recipe.parallel.dp;
  std::vector<ScalePoint> points;
  for (int64_t dp = std::max<int64_t>(1, (range.low + copy - 1) / copy); dp * copy <= range.high; dp *= 2) {
    if (cluster.num_devices > 0 && dp * copy > cluster.num_devices) break;
    const int64_t data = dp * recipe.parallel.cp;
    if (data % recipe.parallel.ep != 0) continue;
    Recipe there = recipe;
    there.parallel.dp = dp;
    there.parallel.micro_batches.clear();
    there.train.global_batch_size = each * dp;
    if (there.parallel.zero_shard_size > 0 && data % there.parallel.zero_shard_size != 0)
      there.parallel.zero_shard_size = 0;
    fit_frozen(there.parallel);
    ScalePoint point{.devices = dp * copy, .forecast = forecast_run(there, config, cluster, profiles), .cause = {}};
    if (!points.empty()) {
      const RunForecast& first = points.front().forecast;
      point.efficiency = point.forecast.tokens_per_s_per_device() / first.tokens_per_s_per_device();
      point.cause = cause_of(point.forecast.step, first.step);
    }
    points.push_back(std::move(point));
  }
  if (points.empty())
    throw ConfigError(
        fmt::format("no multiple of tp x pp x cp = {} that parallel.ep = {} divides lies between {} and {} "
                    "devices of the cluster",
                    copy, recipe.parallel.ep, range.low, range.high));
  return points;
}

std::string to_string(const std::vector<ScalePoint>& points) {
  std::string text =
      fmt::format("{:>8} {:>10} {:>12} {:>7} {:>11}\n", "devices", "step", "tokens/s", "MFU", "efficiency");
  for (const ScalePoint& p : points) {
    const int columns = std::clamp(int(p.efficiency * kBarColumns + 0.5), 0, kBarColumns);
    std::string bar(size_t(columns), '#');
    bar.resize(kBarColumns, ' ');
    text += fmt::format("{:>8} {:>8.3f} s {:>12.0f} {:>5.1f} % {:>9.1f} % |{}|{}\n", p.devices, p.forecast.step.step_s,
                        p.forecast.tokens_per_s(), p.forecast.mfu() * 100, p.efficiency * 100, bar,
                        p.cause.empty() ? "" : " " + p.cause);
  }
  return text;
}

}  // namespace weft
