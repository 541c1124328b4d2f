#include "weft/forecast/forecast.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/time_parts.h"
#include "weft/plan/recompute_budget.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

constexpr double kThousand = 1e3, kMillion = 1e6, kHour = 3600, kGiB = double(1 << 30);

}  // namespace

std::vector<TimePart> time_parts_of(const StepForecast& step) {
  std::vector<TimePart> parts;
  for (int c = 0; c < kWorkClasses; ++c)
    parts.push_back({std::string(name_of(WorkClass(c))), step.compute_s[size_t(c)]});
  parts.push_back({"launches", step.launch_s});
  for (const auto& [axis, seconds] : step.exposed_s) parts.push_back({fmt::format("exposed {}", axis), seconds});
  parts.push_back({"slowed by communication", step.slowdown_s});
  parts.push_back({"bubble", step.bubble_s});
  std::erase_if(parts, [](const TimePart& p) { return p.seconds <= 0; });
  std::stable_sort(parts.begin(), parts.end(),
                   [](const TimePart& a, const TimePart& b) { return a.seconds > b.seconds; });
  return parts;
}

std::string time_parts_text(const StepForecast& step) {
  std::string text = fmt::format("\n{:<30}{:>12}{:>9}\n", "where the step goes", "seconds", "part");
  for (const TimePart& p : time_parts_of(step))
    text += fmt::format("  {:<28}{:>12.5f}{:>8.1f}%\n", p.name, p.seconds, p.seconds / step.step_s * 100);
  return text;
}

std::string duration_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.2f} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.1f} min", seconds / 60);
  if (seconds < 48 * kHour) return fmt::format("{:.1f} h", seconds / kHour);
  return fmt::format("{:.1f} days", seconds / (24 * kHour));
}

int64_t RunForecast::memory_bytes() const {
  int64_t most = 0;
  for (const StageWork& stage : work.kinds) most = std::max(most, stage.memory_bytes);
  return most;
}

double RunForecast::save_s() const {
  int64_t most = 0;
  for (const StageWork& stage : work.kinds) most = std::max(most, stage.saved_bytes);
  return double(most) / cluster.disk_bytes_per_s;
}

FailureSpec RunForecast::failures() const {
  return {.mean_s_between = kHour / (cluster.failures_per_device_hour * num_devices()),
          .save_s = save_s(),
          .restart_s = cluster.restart_s};
}

FailureSpec RunForecast::spot_failures() const {
  FailureSpec f = failures();
  f.mean_s_between = kHour / ((cluster.failures_per_device_hour + cluster.preemptions_per_device_hour) * num_devices());
  return f;
}

namespace {

constexpr int kSimulated = 100;
constexpr double kMostIntervals = 20000, kMostSlower = 10;
constexpr uint64_t kSeedOfFailures = 1;

// The time within which nine of ten simulated runs end; 0 where playing them would take long.
double nearly_all_s(double work_s, double interval_s, double expected_s, const FailureSpec& failures) {
  if (!(expected_s < kMostSlower * work_s) || work_s / interval_s > kMostIntervals) return 0;
  return simulated_runs_s(work_s, interval_s, failures, kSeedOfFailures, kSimulated)[kSimulated * 9 / 10];
}

// Whether the cluster says what a run on spot devices costs, and how long it takes.
bool has_spot(const RunForecast& f) {
  return f.cluster.spot_price_per_device_hour > 0 && f.cluster.preemptions_per_device_hour > 0;
}
struct SpotRun {
  double save_interval_s = 0, run_s = 0, price = 0;
};
SpotRun spot_run(const RunForecast& f, double work_s) {
  const FailureSpec lost = f.spot_failures();
  SpotRun run{.save_interval_s = best_save_interval(lost)};
  run.run_s = expected_run_s(work_s, run.save_interval_s, lost);
  run.price = run.run_s / kHour * f.num_devices() * f.cluster.spot_price_per_device_hour;
  return run;
}
std::string spot_text(const RunForecast& f, double work_s) {
  const SpotRun spot = spot_run(f, work_s);
  if (!std::isfinite(spot.run_s)) return "never ends: they are taken away too often";
  return fmt::format(
      "one is lost each {} on average; a checkpoint each {}: {}, {:.4g}{}",
      duration_text(f.spot_failures().mean_s_between), duration_text(spot.save_interval_s), duration_text(spot.run_s),
      spot.price,
      f.price_per_step() > 0
          ? fmt::format(" ({:+.1f} % of the price without failures)",
                        (spot.price / (f.cluster.price_per_device_hour / kHour * f.num_devices() * work_s) - 1) * 100)
          : "");
}

}  // namespace

void require_priced(const Recipe& recipe) {
  if (has_phases(recipe))
    throw ConfigError(
        "a forecast is of steps that are alike, and those of this recipe are not ([[phase]], train.rampup_batch_size); "
        "what works: a recipe for each phase");
}

namespace {

// What was measured is of ranks of one kind, with so many threads each.
void require_measured(const Recipe& recipe, const MeasuredRanks& measured) {
  const bool processes = recipe.run.ranks == RanksKind::mpi;
  if (mesh_sizes_of(recipe).world() > 1 && processes != measured.processes)
    throw ConfigError(fmt::format(
        "run.ranks = \"{}\", but the cluster was measured with ranks as {}; what works: "
        "run.ranks=\"{}\"",
        recipe.run.ranks, measured.processes ? "processes" : "threads", measured.processes ? "mpi" : "local"));
  if (recipe.run.threads > 0 && recipe.run.threads != measured.threads)
    throw ConfigError(
        fmt::format("run.threads = {}, but the cluster was measured with {} ranks of {} on a node; what "
                    "works: run.threads=0",
                    recipe.run.threads, measured.ranks, measured.threads));
}

// A node has the memory of all its devices, whichever ranks share it.
void share_memory(ClusterSpec& cluster, int64_t ranks) {
  const double here = double(std::min<int64_t>(ranks, cluster.devices_per_node));
  cluster.device.memory_bytes *= cluster.devices_per_node / here;
}

}  // namespace

RunPlan forecast_plan(const Recipe& recipe, const HfConfig& config) {
  RunPlan plan = prepare_run(recipe, config, 0);
  settle_recompute(recipe, plan, WorkspaceModel());
  return plan;
}

RunForecast forecast_run(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                         const Profiles& profiles) {
  require_priced(recipe);
  const int64_t ranks = mesh_sizes_of(recipe).world();
  if (cluster.num_devices > 0 && ranks > cluster.num_devices)
    throw ConfigError(fmt::format("the layout has {} ranks, the cluster {} devices; what fits: {}", ranks,
                                  cluster.num_devices, fewer_ranks(recipe, cluster.num_devices)));
  if (ranks > cluster.domain && cluster.scale_out.bytes_per_s <= 0)
    throw ConfigError(
        fmt::format("the layout has {} ranks, but only {} devices reach each other: the cluster's file "
                    "does not say scale_out.gb_s",
                    ranks, cluster.domain));
  const MeasuredRanks* measured = measured_of(cluster, ranks);
  if (measured != nullptr) require_measured(recipe, *measured);
  const RunPlan plan = forecast_plan(recipe, config);
  if (measured != nullptr && measured->best_rate(name_of(plan.step.precision.compute)) == 0)
    throw ConfigError(
        fmt::format("train.precision = \"{}\", but the cluster was measured in others alone; what works: "
                    "weft bench machine without --precision",
                    recipe.train.precision));
  RunForecast forecast{.cluster = cluster,
                       .work = work_of(recipe, plan, cluster, ProductFormat::bits16),
                       .profile = program_on(cluster, profiles.of("weft", plan.model.has_experts())),
                       .step = {}};
  const bool f32 = recipe.train.precision == PrecisionChoice::f32;
  const ProductRates& peak = cluster.device.peak;
  forecast.peak_flops = f32 && peak.f32 > 0 ? peak.f32 : peak.bits16;
  if (measured != nullptr) {
    share_memory(forecast.cluster, ranks);
    forecast.peak_flops = measured->best_rate(name_of(plan.step.precision.compute));
  }
  forecast.step = price_step(forecast.work, forecast.profile);
  return forecast;
}

std::string to_string(const RunForecast& f, int64_t steps) {
  const double step_s = f.step.step_s;
  std::string text = fmt::format("forecast on {} {}{}:\n", f.num_devices(), f.cluster.device.name,
                                 f.num_devices() > 1 ? " devices" : "");
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<30}{}\n", name, value);
  };
  line("step", duration_text(step_s));
  line("tokens/s", fmt::format("{:.0f} ({:.0f} a device)", f.tokens_per_s(), f.tokens_per_s_per_device()));
  line("MFU, HFU", fmt::format("{:.1f} %, {:.1f} %", f.mfu() * 100, f.hfu() * 100));
  line("memory of the fullest device",
       fmt::format("{:.1f} of {:.1f} GiB{}", double(f.memory_bytes()) / kGiB, f.cluster.device.memory_bytes / kGiB,
                   f.fits() ? "" : ": does not fit"));
  if (f.joules_per_step() > 0)
    line("energy, at most", fmt::format("{:.4g} kJ a step", f.joules_per_step() / kThousand));
  if (f.price_per_step() > 0)
    line("price", fmt::format("{:.4g} a step, {:.4g} a million tokens ({:g} a device and hour{})", f.price_per_step(),
                              f.price_per_step() / f.work.tokens * kMillion, f.cluster.price_per_device_hour,
                              f.cluster.price_source.empty() ? "" : "; example: " + f.cluster.price_source));
  if (steps > 0)
    line("the run",
         fmt::format("{} steps, {}{}", steps, duration_text(step_s * double(steps)),
                     f.price_per_step() > 0 ? fmt::format(", {:.4g}", f.price_per_step() * double(steps)) : ""));
  if (steps > 0 && f.cluster.failures_per_device_hour > 0) {
    const FailureSpec failures = f.failures();
    const double work = step_s * double(steps), every = best_save_interval(failures);
    const double whole = expected_run_s(work, every, failures), late = nearly_all_s(work, every, whole, failures);
    line("with failures",
         fmt::format("one in {} on average; a checkpoint each {} loses least (it stops the run for {}): {}, of "
                     "which {:.1f} % are steps{}",
                     duration_text(failures.mean_s_between), duration_text(every), duration_text(failures.save_s),
                     duration_text(whole), work / whole * 100,
                     late > 0 ? "; nine of ten simulated runs end within " + duration_text(late) : ""));
  }
  if (steps > 0 && has_spot(f)) line("on spot devices", spot_text(f, step_s * double(steps)));
  return text + time_parts_text(f.step);
}

nlohmann::json to_json(const RunForecast& f, int64_t steps) {
  nlohmann::json json{{"device", f.cluster.device.name},
                      {"num_devices", f.num_devices()},
                      {"step_s", f.step.step_s},
                      {"tokens_per_s", f.tokens_per_s()},
                      {"tokens_per_s_per_device", f.tokens_per_s_per_device()},
                      {"mfu", f.mfu()},
                      {"hfu", f.hfu()},
                      {"memory_bytes", f.memory_bytes()},
                      {"device_memory_bytes", f.cluster.device.memory_bytes},
                      {"joules_per_step", f.joules_per_step()},
                      {"price_per_step", f.price_per_step()},
                      {"price_per_million_tokens", f.price_per_step() / f.work.tokens * kMillion}};
  if (steps > 0) json["run_s"] = f.step.step_s * double(steps);
  if (steps > 0 && f.cluster.failures_per_device_hour > 0) {
    const FailureSpec failures = f.failures();
    json["save_interval_s"] = best_save_interval(failures);
    const double work = f.step.step_s * double(steps), every = best_save_interval(failures);
    const double whole = expected_run_s(work, every, failures), late = nearly_all_s(work, every, whole, failures);
    json["run_with_failures_s"] = whole;
    if (late > 0) json["nine_of_ten_runs_s"] = late;
  }
  if (steps > 0 && has_spot(f)) {
    const SpotRun spot = spot_run(f, f.step.step_s * double(steps));
    if (std::isfinite(spot.run_s))
      json["on_spot"] = {{"save_interval_s", spot.save_interval_s}, {"run_s", spot.run_s}, {"price", spot.price}};
  }
  for (const TimePart& p : time_parts_of(f.step)) json["parts"][p.name] = p.seconds;
  return json;
}

}  // namespace weft
